"""A home of Spark whose Python processes import PySpark from where it is installed.

Spark puts `python/lib/pyspark.zip` of its home first on their path. Python keeps nothing compiled of a zip:
each process would compile what it imports again, for more than a second of a processor. A home without it has
the same scripts and jars, and the modules of the zip are those of the package.
"""

from pathlib import Path

import pyspark


def make_spark_home(folder: Path) -> str:
    """Return a new home in a folder, for SPARK_HOME."""
    home = folder / "spark-home"
    home.mkdir()
    for each in ("bin", "jars"):
        (home / each).symlink_to(Path(pyspark.__file__).parent / each)
    return str(home)
