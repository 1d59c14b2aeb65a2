"""Arrays apart from computing: exchange with other libraries, files, display."""
