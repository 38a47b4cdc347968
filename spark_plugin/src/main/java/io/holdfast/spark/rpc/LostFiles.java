package io.holdfast.spark.rpc;

import io.holdfast.spark.files.FileId;
import java.io.Serializable;
import java.util.List;

/** From an executor to the driver: physical files that could not be made durable. */
public record LostFiles(String dir, String executorId, List<FileId> files)
    implements Serializable {}
