"""Commands that move the state of a query, beside Spark's offline repartition."""
