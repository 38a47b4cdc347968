package io.holdfast.spark.sparklog;

import io.holdfast.spark.sparklog.SparkFile.Kind;
import io.holdfast.spark.storage.AtomicStream;
import io.holdfast.spark.storage.LocalModes;
import io.holdfast.spark.storage.LocalStorage;
import io.holdfast.spark.storage.NewObject;
import io.holdfast.spark.storage.ObjectStores;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Writes the files of Spark's checkpoints: durably on local disks and HDFS, and without a rename on
 * object stores. Over a network Spark need not ask for files that this process wrote.
 */
public final class DurableFileManager extends SparkFileManager {
  private final Configuration conf;
  private final Path root;
  private final FileSystem fileSystem;
  private final boolean local;

  /** Empty on local disks, where a question costs nothing. */
  private final Optional<RecentEntries> recent;

  public DurableFileManager(Path path, Configuration conf) {
    super(sparksOwn(path, conf));
    this.conf = conf;
    root = path;
    try {
      fileSystem = path.getFileSystem(conf);
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot reach " + path + ": " + e.getMessage(), e);
    }
    local = "file".equals(fileSystem.getUri().getScheme());
    recent = local ? Optional.empty() : Optional.of(new RecentEntries());
  }

  @Override
  public AtomicStream createAtomic(Path path, boolean overwriteIfPossible) {
    SparkFile file = SparkFile.of(path);
    AtomicStream out;
    try {
      out = create(file, fileSystem.makeQualified(path), overwriteIfPossible);
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot create " + path + ": " + e.getMessage(), e);
    }
    return recent.isPresent() && file.isEntry() ? recent.get().keeping(out, file) : out;
  }

  private AtomicStream create(SparkFile file, Path path, boolean overwrite) throws IOException {
    if (ObjectStores.serve(fileSystem, path)) {
      return NewObject.create(fileSystem, path, overwrite);
    }
    if (file.kind() != Kind.OF_STORE) {
      if (local) {
        return LocalEntry.create(LocalStorage.local(path), new LocalModes(conf), overwrite);
      }
      if (HdfsEntry.serves(fileSystem)) {
        return HdfsEntry.create(fileSystem, path, overwrite);
      }
    }
    return super.createAtomic(file.path(), overwrite);
  }

  @Override
  public boolean exists(Path path) {
    if (recent.isPresent()) {
      if (recent.get().has(path)) {
        return true;
      }
      if (recent.get().isNext(path) && refusesTakenNames(path)) {
        return false;
      }
    }
    return super.exists(path);
  }

  /** Returns true if closing a file refuses a name that another application took, at no cost. */
  private boolean refusesTakenNames(Path path) {
    try {
      return ObjectStores.serve(fileSystem, path)
          ? NewObject.looksAtClose(fileSystem, path)
          : HdfsEntry.serves(fileSystem);
    } catch (IOException e) {
      return false;
    }
  }

  @Override
  public void delete(Path path) {
    recent.ifPresent(entries -> entries.forget(path));
    Kind kind = SparkFile.of(path).kind();
    if (kind != Kind.PLAN && kind != Kind.COMMIT) {
      super.delete(path);
      return;
    }
    // It is no folder: this saves questions to an object store.
    try {
      ObjectStores.delete(fileSystem, List.of(path));
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot delete " + path + ": " + e.getMessage(), e);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    return recent.flatMap(entries -> entries.open(path)).orElseGet(() -> super.open(path));
  }

  @Override
  public void mkdirs(Path path) {
    makeDurable(path);
    super.mkdirs(path);
  }

  @Override
  public Path createCheckpointDirectory() {
    makeDurable(root);
    return super.createCheckpointDirectory();
  }

  /** Makes a folder with its parents if Spark would not make it durable. */
  private void makeDurable(Path folder) {
    if (local) {
      try {
        Path path = fileSystem.makeQualified(folder);
        LocalStorage.makeFolder(LocalStorage.local(path), new LocalModes(conf));
      } catch (IOException e) {
        String why = "Cannot create the folder " + folder + ": " + e.getMessage();
        throw new UncheckedIOException(why, e);
      }
    }
  }
}
