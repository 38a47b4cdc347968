/**
 * The Holdfast tab of Spark's UI. A listener keeps what events say in Spark's own store of the UI, and
 * pages read it there: so a running application and the History Server show the same.
 */
package io.holdfast.spark.ui;
