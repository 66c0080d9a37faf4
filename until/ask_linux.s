// Go takes a function without a body for a mistake in a package without this.
