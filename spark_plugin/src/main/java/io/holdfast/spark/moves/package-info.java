/**
 * Moves of a checkpoint between state store providers, for the command line. docs/internals/moves.md
 * has the protocol.
 */
package io.holdfast.spark.moves;
