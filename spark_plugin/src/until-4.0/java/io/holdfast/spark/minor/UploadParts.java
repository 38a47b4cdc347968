package io.holdfast.spark.minor;

import java.io.IOException;
import java.io.InputStream;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.fs.MultipartUploader;
import org.apache.hadoop.fs.PartHandle;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UploadHandle;

/** Parts of a multipart upload, as Hadoop 3.4.1 takes them. */
public final class UploadParts {
  private UploadParts() {}

  /**
   * Begins to send a part.
   *
   * @param number from 1 on
   */
  public static CompletableFuture<PartHandle> put(
      MultipartUploader uploader,
      UploadHandle upload,
      int number,
      boolean last,
      Path target,
      InputStream content,
      long bytes)
      throws IOException {
    return uploader.putPart(upload, number, target, content, bytes);
  }
}
