/** Moves of a checkpoint between providers, for the command line; see docs/internals/moves.md. */
package io.holdfast.spark.moves;
