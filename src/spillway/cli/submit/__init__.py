"""Only the file for `spark-submit`: Python imports from the folder of a script first."""
