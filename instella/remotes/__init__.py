"""A store elsewhere: sends a run's results to a folder, web server or bucket, and takes them."""
