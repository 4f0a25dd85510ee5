"""The disorder bench: sources that lag behind each other, and whose watermark makes rows late."""
