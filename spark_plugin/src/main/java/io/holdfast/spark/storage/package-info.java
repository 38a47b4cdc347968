/** Gives new files their names on each kind of file system. All other packages of files use it. */
package io.holdfast.spark.storage;
