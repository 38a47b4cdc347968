package io.holdfast.spark.store;

import java.lang.ref.Cleaner;
import org.apache.spark.unsafe.Platform;

/** Native memory through which rows cross to Rust, one per thread and for the thread's life. */
final class Scratch {
  private static final Cleaner CLEANER = Cleaner.create();
  private static final ThreadLocal<Scratch> CURRENT = ThreadLocal.withInitial(Scratch::new);
  private static final int FIRST_BYTES = 4096;

  private static final class Memory implements Runnable {
    long address = Platform.allocateMemory(FIRST_BYTES);
    int capacity = FIRST_BYTES;

    @Override
    public void run() {
      Platform.freeMemory(address);
    }
  }

  private final Memory memory = new Memory();

  private Scratch() {
    CLEANER.register(this, memory);
  }

  static Scratch current() {
    return CURRENT.get();
  }

  /** Returns the start of at least {@code bytes} bytes, and keeps their content. */
  long reserve(int bytes) {
    if (bytes > memory.capacity) {
      int grown = (int) Math.max(bytes, Math.min(2L * memory.capacity, Integer.MAX_VALUE));
      memory.address = Platform.reallocateMemory(memory.address, memory.capacity, grown);
      memory.capacity = grown;
    }
    return memory.address;
  }

  int capacity() {
    return memory.capacity;
  }
}
