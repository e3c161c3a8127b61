"""The page: Gradio only. Everything shown is a view of a recorded run."""
