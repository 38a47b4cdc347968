package io.holdfast.bench;

import io.holdfast.bench.Meter.Kind;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * An object store in memory, {@code scale://bucket/path}. All buckets are one, and a listing may
 * name another. Each call of Hadoop counts the requests that S3A sends for it, which
 * tests/spark/filesystems/test_simulated_requests.py compares. Calls that Holdfast makes on no
 * object store are not there.
 */
public final class CountedStore extends FileSystem {
  static final String SCHEME = "scale";

  /** True in the settings of executors. */
  static final String OF_EXECUTOR_KEY = "fs.scale.executor";

  private static final int LISTED_KEYS = 1_000;
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
  private static final String NO_LOOK = "fs.s3a.create.performance";
  private static final String NEW_METADATA = "fs.s3a.create.header.";
  private static final String METADATA = "header.";
  private static final String DELETED_KEYS = "fs.s3a.bulk.delete.page.size";
  private static final int DELETED_KEYS_DEFAULT = 250; // S3A's
  private static final int READ_AHEAD = 64 << 10; // S3A's, of random reads

  /** The status is not made again for each listing, which would take most of the CPU time. */
  private record Stored(byte[] content, Map<String, String> metadata, FileStatus status) {}

  /** By path. A folder without content has a name that ends with a slash. */
  private static final ConcurrentSkipListMap<String, Stored> OBJECTS =
      new ConcurrentSkipListMap<>();

  private URI name;
  private boolean ofExecutor;

  @Override
  public void initialize(URI uri, Configuration conf) throws IOException {
    super.initialize(uri, conf);
    setConf(conf);
    name = URI.create(uri.getScheme() + "://" + uri.getAuthority());
    ofExecutor = conf.getBoolean(OF_EXECUTOR_KEY, false);
  }

  /** Removes all objects. */
  static void clear() {
    OBJECTS.clear();
  }

  static long objects() {
    return OBJECTS.size();
  }

  private <T> T request(Kind kind, Supplier<T> answer) {
    return Meter.ONLY.request(kind, ofExecutor, answer);
  }

  private String key(Path path) {
    return makeQualified(path).toUri().getPath();
  }

  @Override
  public URI getUri() {
    return name;
  }

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) {
    String asked = capability.toLowerCase(Locale.ROOT);
    return asked.equals(CommonPathCapabilities.ABORTABLE_STREAM) || asked.equals(CONDITIONAL);
  }

  // Writes

  @Override
  public FSDataOutputStreamBuilder<?, ?> createFile(Path path) {
    return new Builder(this, path);
  }

  private static final class Builder
      extends FSDataOutputStreamBuilder<FSDataOutputStream, Builder> {
    private final CountedStore store;

    Builder(CountedStore store, Path path) {
      super(store, path);
      this.store = store;
    }

    @Override
    public Builder getThisBuilder() {
      return this;
    }

    @Override
    public FSDataOutputStream build() throws IOException {
      Configuration options = getOptions();
      boolean isConditional = options.getBoolean(CONDITIONAL, false);
      boolean replaces = getFlags().contains(CreateFlag.OVERWRITE);
      String key = store.key(getPath());
      if (!options.getBoolean(NO_LOOK, false)) {
        if (!replaces && store.head(key) != null) {
          throw new FileAlreadyExistsException(getPath() + " exists");
        }
        store.isFolder(key);
      }
      Map<String, String> metadata = new HashMap<>(options.getPropsWithPrefix(NEW_METADATA));
      return new FSDataOutputStream(store.new Upload(key, isConditional, metadata), null);
    }
  }

  private final class Upload extends ByteArrayOutputStream
      implements Abortable, StreamCapabilities {
    private final String key;
    private final boolean isConditional;
    private final Map<String, String> metadata;
    private boolean ended;

    Upload(String key, boolean isConditional, Map<String, String> metadata) {
      this.key = key;
      this.isConditional = isConditional;
      this.metadata = metadata;
    }

    @Override
    public boolean hasCapability(String capability) {
      return StreamCapabilities.ABORTABLE_STREAM.equals(capability);
    }

    @Override
    public AbortableResult abort() {
      boolean before = ended;
      ended = true;
      return new AbortableResult() {
        @Override
        public boolean alreadyClosed() {
          return before;
        }

        @Override
        public IOException anyCleanupException() {
          return null;
        }
      };
    }

    @Override
    public void close() throws IOException {
      if (ended) {
        return;
      }
      ended = true;
      Stored made = stored(key, toByteArray(), metadata);
      Stored before =
          request(
              Kind.PUT,
              () -> isConditional ? OBJECTS.putIfAbsent(key, made) : OBJECTS.put(key, made));
      if (isConditional && before != null) {
        throw new FileAlreadyExistsException(key + " exists");
      }
    }
  }

  @Override
  public byte[] getXAttr(Path path, String attribute) throws IOException {
    Stored found = found(path, head(key(path)));
    String value = found.metadata.get(attribute.substring(METADATA.length()));
    return value == null ? null : value.getBytes(StandardCharsets.UTF_8);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    String key = key(path);
    if (isFolder(key)) {
      return true;
    }
    if (head(key) != null) {
      throw new FileAlreadyExistsException(path + " is a file");
    }
    // Looks for a file in the place of a parent, up to the first parent that exists.
    for (Path parent = path.getParent(); !parent.isRoot(); parent = parent.getParent()) {
      if (isFolder(key(parent))) {
        break;
      }
      head(key(parent));
    }
    request(Kind.PUT, () -> OBJECTS.put(key + "/", stored(key, new byte[0], Map.of())));
    return true;
  }

  @Override
  public BulkDelete createBulkDelete(Path base) {
    int page = getConf().getInt(DELETED_KEYS, DELETED_KEYS_DEFAULT);
    return new BulkDelete() {
      @Override
      public int pageSize() {
        return page;
      }

      @Override
      public Path basePath() {
        return base;
      }

      @Override
      public List<Map.Entry<Path, String>> bulkDelete(Collection<Path> paths) {
        List<String> keys = paths.stream().map(CountedStore.this::key).toList();
        if (keys.size() > page) {
          throw new IllegalArgumentException(keys.size() + " keys are more than " + page);
        }
        request(
            keys.size() == 1 ? Kind.DELETE : Kind.BULK_DELETE,
            () -> OBJECTS.keySet().removeAll(keys));
        return List.of();
      }

      @Override
      public void close() {}
    };
  }

  // Looks

  private Stored head(String key) {
    return request(Kind.HEAD, () -> OBJECTS.get(key));
  }

  private static Stored found(Path path, Stored stored) throws FileNotFoundException {
    if (stored == null) {
      throw new FileNotFoundException("No such file: " + path);
    }
    return stored;
  }

  private boolean isFolder(String key) {
    return request(
        Kind.LIST,
        () -> {
          String first = OBJECTS.ceilingKey(key + "/");
          return first != null && first.startsWith(key + "/");
        });
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    String key = key(path);
    Stored file = head(key);
    if (file != null) {
      return file.status;
    }
    if (isFolder(key)) {
      return folderStatus(key);
    }
    throw new FileNotFoundException("No such file: " + path);
  }

  private Stored stored(String key, byte[] content, Map<String, String> metadata) {
    Path path = new Path(name + key);
    return new Stored(
        content, metadata, new FileStatus(content.length, false, 1, 1, 0, path));
  }

  private FileStatus folderStatus(String key) {
    return new FileStatus(0, true, 1, 1, 0, new Path(name + key));
  }

  /** Each page has so many files and folders. */
  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    String folder = key(path) + "/";
    List<FileStatus> found = new ArrayList<>();
    String next = folder;
    while (next != null) {
      String from = next;
      next = request(Kind.LIST, () -> page(folder, from, found));
    }
    if (found.isEmpty()) {
      FileStatus status = getFileStatus(path);
      return status.isDirectory() ? new FileStatus[0] : new FileStatus[] {status};
    }
    return found.toArray(FileStatus[]::new);
  }

  /** Returns the first key of the next page; null if this one is the last. */
  private String page(String folder, String from, List<FileStatus> found) {
    int before = found.size();
    Map.Entry<String, Stored> entry =
        from.equals(folder) ? OBJECTS.higherEntry(folder) : OBJECTS.ceilingEntry(from);
    while (entry != null && entry.getKey().startsWith(folder)) {
      String key = entry.getKey();
      if (found.size() - before == LISTED_KEYS) {
        return key;
      }
      int end = key.indexOf('/', folder.length());
      if (end < 0) {
        found.add(entry.getValue().status);
        entry = OBJECTS.higherEntry(key);
      } else {
        String below = key.substring(0, end);
        found.add(folderStatus(below));
        entry = OBJECTS.ceilingEntry(below + (char) ('/' + 1));
      }
    }
    return null;
  }

  // Reads

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    return new FSDataInputStream(new Download(path, length(path), Long.MAX_VALUE));
  }

  /** The length of a file. An open looks for no folder. */
  private long length(Path path) throws FileNotFoundException {
    return found(path, head(key(path))).content.length;
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(
      Path path, OpenFileParameters parameters) throws IOException {
    String known = parameters.getOptions().get(OpenFileOptions.FS_OPTION_OPENFILE_LENGTH);
    FileStatus status = parameters.getStatus();
    long length =
        status != null ? status.getLen() : known != null ? Long.parseLong(known) : length(path);
    return CompletableFuture.completedFuture(
        new FSDataInputStream(new Download(path, length, READ_AHEAD)));
  }

  /** Asks for a range, and reads on in it: S3A's classic stream. */
  private final class Download extends FSInputStream {
    private final Path path;
    private final long length;
    private final long ahead;
    private byte[] content;
    private long at; // in the open range, which ends at rangeEnd
    private long rangeEnd;
    private long wanted;

    Download(Path path, long length, long ahead) {
      this.path = path;
      this.length = length;
      this.ahead = ahead;
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] into, int from, int bytes) throws IOException {
      if (bytes == 0) {
        return 0;
      }
      if (wanted >= length) {
        return -1;
      }
      if (wanted < at || wanted >= rangeEnd) {
        content = found(path, request(Kind.GET, () -> OBJECTS.get(key(path)))).content;
        rangeEnd = Math.min(length, wanted + Math.min(length, Math.max(ahead, bytes)));
      }
      at = wanted;
      int read = (int) Math.min(bytes, rangeEnd - at);
      if (at + read > content.length) {
        throw new EOFException(path + " has " + content.length + " bytes");
      }
      System.arraycopy(content, (int) at, into, from, read);
      at += read;
      wanted = at;
      return read;
    }

    @Override
    public void seek(long position) {
      wanted = position;
    }

    @Override
    public long getPos() {
      return wanted;
    }

    @Override
    public boolean seekToNewSource(long position) {
      return false;
    }
  }

  // Calls that nothing makes on an object store

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress) {
    throw new UnsupportedOperationException("create of " + path + " without a builder");
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException("append to " + path);
  }

  @Override
  public boolean rename(Path from, Path to) {
    throw new UnsupportedOperationException("rename of " + from);
  }

  @Override
  public boolean delete(Path path, boolean recursive) {
    throw new UnsupportedOperationException("delete of " + path + " that asks what it is");
  }

  @Override
  public Path getWorkingDirectory() {
    return new Path(name + "/");
  }

  @Override
  public void setWorkingDirectory(Path path) {
    throw new UnsupportedOperationException("a working folder");
  }
}
