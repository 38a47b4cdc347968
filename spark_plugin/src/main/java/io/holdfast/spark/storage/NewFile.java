package io.holdfast.spark.storage;

import java.io.IOException;
import java.util.EnumSet;
import java.util.UUID;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Makes files on HDFS and similar file systems. */
public final class NewFile {
  private static final int BUFFER_BYTES = 64 << 10;

  /**
   * For files that a restart needs. A sync covers only the last block of a file, so each block is
   * synced when it ends. HDFS does not do that with erasure-coded files.
   */
  public static final EnumSet<CreateFlag> DURABLE =
      EnumSet.of(CreateFlag.CREATE, CreateFlag.SYNC_BLOCK, CreateFlag.SHOULD_REPLICATE);

  private NewFile() {}

  /** A name next to the file's own, while it is being written. */
  public static Path temporary(Path path) {
    return new Path(path.getParent(), "." + path.getName() + "." + UUID.randomUUID() + ".tmp");
  }

  /**
   * Begins a file.
   *
   * @param flags with {@code SHOULD_REPLICATE} if the file is to be synced: otherwise HDFS silently
   *     does not sync a file of an erasure-coded folder
   * @param withParents whether to make the folders above it
   */
  public static FSDataOutputStream create(
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
