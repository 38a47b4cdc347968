package io.holdfast.spark.files;

import java.io.IOException;
import java.util.EnumSet;
import java.util.UUID;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Makes files on HDFS, and on what is like it. */
final class NewFiles {
  private static final int BUFFER_BYTES = 64 << 10;

  /**
   * What a restart goes on from. Of a file with several blocks, a sync covers only the last one: each is
   * synced when it ends, which HDFS does with none of an erasure-coded file.
   */
  static final EnumSet<CreateFlag> DURABLE =
      EnumSet.of(CreateFlag.CREATE, CreateFlag.SYNC_BLOCK, CreateFlag.SHOULD_REPLICATE);

  private NewFiles() {}

  /** A name beside a file's own, for as long as it is being written. */
  static Path temporary(Path path) {
    return new Path(path.getParent(), "." + path.getName() + "." + UUID.randomUUID() + ".tmp");
  }

  /**
   * Begins a file.
   *
   * @param flags with {@code SHOULD_REPLICATE} for what is to be synced: HDFS does not sync a file of an
   *     erasure-coded folder otherwise, and says nothing
   * @param withParents whether folders above it are made
   */
  static FSDataOutputStream create(
      FileSystem fileSystem, Path path, EnumSet<CreateFlag> flags, boolean withParents)
      throws IOException {
    FsPermission permission =
        FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(fileSystem.getConf()));
    short replication = fileSystem.getDefaultReplication(path);
    long blockBytes = fileSystem.getDefaultBlockSize(path);
    return withParents
        ? fileSystem.create(path, permission, flags, BUFFER_BYTES, replication, blockBytes, null)
        : fileSystem.createNonRecursive(
            path, permission, flags, BUFFER_BYTES, replication, blockBytes, null);
  }
}
