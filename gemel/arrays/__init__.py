"""What an array does beside computing: exchange with other libraries, files, how it is shown."""
