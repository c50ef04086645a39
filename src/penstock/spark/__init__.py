"""Gates, journal and control loops on Spark. Only what needs pyspark loads it."""
