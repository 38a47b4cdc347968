package io.holdfast.bench;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;

/** {@link CountedStore} for Hadoop's FileContext. */
public final class CountedContext extends DelegateToFileSystem {
  private static final int NO_PORT = -1;

  /** Called by Hadoop by reflection. */
  public CountedContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new CountedStore(), conf, CountedStore.SCHEME, false);
  }

  @Override
  public int getUriDefaultPort() {
    return NO_PORT;
  }
}
