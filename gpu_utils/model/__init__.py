"""The course's language model: GPT-2, its corpus, its costs, how it is trained and what a run leaves behind."""
