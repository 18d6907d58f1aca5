"""What a run works with: the Spark session, and how work is placed on it.

Belongs here: sessions, placement, files of the warehouse. No rule of retention.
"""
