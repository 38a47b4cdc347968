package io.holdfast.spark.staging;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.NewerFormatException;
import io.holdfast.spark.storage.FileErrors;
import java.io.ByteArrayInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.SequenceInputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.fs.BBPartHandle;
import org.apache.hadoop.fs.BBUploadHandle;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.MultipartUploader;
import org.apache.hadoop.fs.PartHandle;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UploadHandle;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * An upload in parts: its object appears when the upload is completed. Another, small object has
 * all that any process needs to complete it.
 *
 * @param sha256 of the content, to recognise the object
 * @param parts handles of the parts, in their order
 */
record Upload(Path target, long length, byte[] sha256, byte[] upload, List<byte[]> parts) {
  /** The limit of S3 for all parts but the last. */
  private static final long LEAST_PART_BYTES = 5L << 20;
  private static final int MOST_PARTS = 10_000; // the limit of S3

  private static final String PART_BYTES = "fs.s3a.multipart.size";
  private static final long DEFAULT_PART_BYTES = 64L << 20;

  /** For one file. Parts are not kept in memory. */
  private static final int PARTS_AT_ONCE = 4;

  private static final int VERSION = 1;
  private static final String VERSION_FIELD = "holdfastUpload";

  /** The JSON begins with it. No file with rows does. */
  private static final byte[] MAGIC =
      ("{\"" + VERSION_FIELD + "\":").getBytes(StandardCharsets.US_ASCII);

  private static final ObjectMapper JSON = new ObjectMapper();

  static boolean serves(FileSystem fileSystem, Path path) throws IOException {
    return fileSystem.hasPathCapability(path, CommonPathCapabilities.FS_MULTIPART_UPLOADER);
  }

  /** Uploads all of a local file. A failure leaves nothing in the store. */
  static Upload of(java.nio.file.Path local, FileSystem fileSystem, Path target)
      throws IOException {
    return FileErrors.repeated(() -> uploaded(local, fileSystem, target));
  }

  private static Upload uploaded(
      java.nio.file.Path local, FileSystem fileSystem, Path target) throws IOException {
    byte[] sha256;
    try (InputStream in = Files.newInputStream(local)) {
      sha256 = sha256(in);
    }
    try (FileChannel file = FileChannel.open(local, StandardOpenOption.READ);
        MultipartUploader uploader = uploader(fileSystem, target)) {
      UploadHandle upload = FutureIO.awaitFuture(uploader.startUpload(target));
      try {
        long partBytes = partBytes(fileSystem, file.size());
        List<byte[]> parts = putParts(uploader, upload, target, file, partBytes);
        return new Upload(target, file.size(), sha256, upload.toByteArray(), parts);
      } catch (IOException | RuntimeException e) {
        FileErrors.suppressed(e, () -> FutureIO.awaitFuture(uploader.abort(upload, target)));
        throw e;
      }
    }
  }

  private static long partBytes(FileSystem fileSystem, long length) {
    long configured = fileSystem.getConf().getLongBytes(PART_BYTES, DEFAULT_PART_BYTES);
    long least = (length + MOST_PARTS - 1) / MOST_PARTS;
    return Math.max(configured, Math.max(least, LEAST_PART_BYTES));
  }

  private static List<byte[]> putParts(
      MultipartUploader uploader,
      UploadHandle upload,
      Path target,
      FileChannel file,
      long partBytes)
      throws IOException {
    List<byte[]> parts = new ArrayList<>();
    Deque<CompletableFuture<PartHandle>> underWay = new ArrayDeque<>();
    long length = file.size();
    // A file without content has one part.
    int count = (int) Math.max(1, (length + partBytes - 1) / partBytes);
    try {
      for (int i = 0; i < count; i++) {
        if (underWay.size() == PARTS_AT_ONCE) {
          parts.add(FutureIO.awaitFuture(underWay.remove()).toByteArray());
        }
        long start = i * partBytes;
        long bytes = Math.min(partBytes, length - start);
        LocalRange content = new LocalRange(file, start, bytes);
        underWay.add(
            uploader.putPart(
                upload,
                i + 1,
                i + 1 == count, // from-4.1
                target, content, bytes));
      }
      while (!underWay.isEmpty()) {
        parts.add(FutureIO.awaitFuture(underWay.remove()).toByteArray());
      }
      return parts;
    } finally {
      // After a failure the caller aborts the upload, for which all parts have to be over.
      underWay.forEach(part -> part.handle((handle, error) -> null).join());
    }
  }

  /** Makes the object. The caller has checked that there is none, as this would replace it. */
  void complete(FileSystem fileSystem) throws IOException {
    Map<Integer, PartHandle> handles = new HashMap<>();
    for (byte[] part : parts) {
      handles.put(handles.size() + 1, BBPartHandle.from(ByteBuffer.wrap(part)));
    }
    try (MultipartUploader uploader = uploader(fileSystem, target)) {
      FutureIO.awaitFuture(uploader.complete(handle(), target, handles));
    }
  }

  /** Does nothing if the upload is over. */
  void abort(FileSystem fileSystem) throws IOException {
    try (MultipartUploader uploader = uploader(fileSystem, target)) {
      FutureIO.awaitFuture(uploader.abort(handle(), target));
    } catch (FileNotFoundException over) {
      // The upload was completed or aborted before.
    }
  }

  private UploadHandle handle() {
    return BBUploadHandle.from(ByteBuffer.wrap(upload));
  }

  boolean isContentOf(FileSystem fileSystem, Path object) throws IOException {
    try (InputStream in = fileSystem.open(object)) {
      return Arrays.equals(sha256, sha256(in));
    }
  }

  private static MultipartUploader uploader(FileSystem fileSystem, Path target)
      throws IOException {
    return fileSystem.createMultipartUploader(target.getParent()).build();
  }

  private static byte[] sha256(InputStream in) throws IOException {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      new DigestInputStream(in, digest).transferTo(OutputStream.nullOutputStream());
      return digest.digest();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }

  byte[] toJson() throws IOException {
    ObjectNode node = JSON.createObjectNode();
    node.put(VERSION_FIELD, VERSION);
    node.put("target", target.toString());
    node.put("length", length);
    node.put("sha256", sha256);
    node.put("upload", upload);
    ArrayNode handles = node.putArray("parts");
    parts.forEach(handles::add);
    return JSON.writeValueAsBytes(node);
  }

  /**
   * Reads the JSON of {@link #toJson}; null if the object is content itself and names no upload.
   *
   * @throws FileNotFoundException if there is no object
   */
  static Upload read(FileSystem fileSystem, Path path) throws IOException {
    JsonNode node;
    try (InputStream in = fileSystem.open(path)) {
      byte[] start = in.readNBytes(MAGIC.length);
      if (!Arrays.equals(start, MAGIC)) {
        return null;
      }
      node = JSON.readTree(new SequenceInputStream(new ByteArrayInputStream(start), in));
    }
    int version = node.path(VERSION_FIELD).asInt();
    if (version > VERSION) {
      throw new NewerFormatException(
          path + " is of version " + version + ", and this Holdfast reads versions up to " + VERSION
              + ": a newer Holdfast staged it. Upgrade Holdfast to publish it.");
    }
    if (version != VERSION) {
      throw new IOException(
          path + " is of version " + version + ", this Holdfast reads version " + VERSION
              + ": use the version of Holdfast that staged it, or a newer one");
    }
    List<byte[]> parts = new ArrayList<>();
    for (JsonNode part : node.path("parts")) {
      parts.add(part.binaryValue());
    }
    return new Upload(
        new Path(node.path("target").asText()),
        node.path("length").asLong(),
        node.path("sha256").binaryValue(),
        node.path("upload").binaryValue(),
        parts);
  }
}
