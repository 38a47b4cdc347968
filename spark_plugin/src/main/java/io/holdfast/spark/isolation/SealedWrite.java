package io.holdfast.spark.isolation;

import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteSummary; // from-4.1
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A sink that commits after the driver has made durable that it may do so. */
final class SealedWrite implements BatchWrite {
  private final BatchWrite sink;
  private final Runnable seal;

  SealedWrite(BatchWrite sink, Runnable seal) {
    this.sink = sink;
    this.seal = seal;
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    return sink.createBatchWriterFactory(info);
  }

  @Override
  public boolean useCommitCoordinator() {
    return sink.useCommitCoordinator();
  }

  @Override
  public void onDataWriterCommit(WriterCommitMessage message) {
    sink.onDataWriterCommit(message);
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    seal.run();
    sink.commit(messages);
  }

  @Override // from-4.1
  public void commit(WriterCommitMessage[] messages, WriteSummary summary) { // from-4.1
    seal.run(); // from-4.1
    sink.commit(messages, summary); // from-4.1
  } // from-4.1

  @Override
  public void abort(WriterCommitMessage[] messages) {
    sink.abort(messages);
  }

  @Override
  public String toString() {
    return sink.toString();
  }
}
