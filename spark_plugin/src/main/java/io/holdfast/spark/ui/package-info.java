/**
 * The Holdfast tab of Spark's UI. A listener keeps rows in Spark's own store of the UI, and pages
 * read them there: a running application and the History Server show the same.
 */
package io.holdfast.spark.ui;
