"""What goes over the wire: calls and replies (`calls`), and how they look (`openai`)."""
