package io.holdfast.spark.storage;

import io.holdfast.spark.Native;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Modes of local files and folders, by Hadoop's {@code fs.permissions.umask-mode}. If that is not
 * set, the umask of the process applies as well.
 */
public final class LocalModes {
  /** The source of settings that no user set. */
  private static final String DEFAULTS = "core-default.xml";

  private static final String MODE = "unix:mode";
  private static final int RIGHTS = 0777;

  private final FsPermission file;
  private final FsPermission folder;
  private final boolean isSet;

  public LocalModes(Configuration conf) {
    FsPermission umask = FsPermission.getUMask(conf);
    file = FsPermission.getFileDefault().applyUMask(umask);
    folder = FsPermission.getDirDefault().applyUMask(umask);
    isSet = isSet(conf);
  }

  private static boolean isSet(Configuration conf) {
    String[] sources = conf.getPropertySources(FsPermission.UMASK_LABEL);
    return sources != null && !Arrays.asList(sources).contains(DEFAULTS);
  }

  /** -1 if no umask was set. */
  public static int umask(Configuration conf) {
    return isSet(conf) ? FsPermission.getUMask(conf).toShort() : -1;
  }

  /** Sets the umask of the native side of this process. */
  public static void follow(Configuration conf) {
    if (isSet(conf)) {
      Native.setLocalUmask(umask(conf));
    }
  }

  public void createFile(Path path) throws IOException {
    Files.createFile(path, attribute(file));
    grant(path, file);
  }

  void createFolder(Path path) throws IOException {
    Files.createDirectory(path, attribute(folder));
    grant(path, folder);
  }

  private static FileAttribute<?> attribute(FsPermission rights) {
    return PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(rights.toString()));
  }

  /** Sets a mode despite the process's umask. A folder keeps the bit that hands on its group. */
  private void grant(Path path, FsPermission rights) throws IOException {
    if (!isSet) {
      return;
    }
    int found = (Integer) Files.getAttribute(path, MODE);
    int wanted = (found & ~RIGHTS) | rights.toShort();
    if (found != wanted) {
      Files.setAttribute(path, MODE, wanted);
    }
  }
}
