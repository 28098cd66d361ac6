"""The worker: claims episodes, runs agents in processes of their own, grades them, and closes the attempts."""
