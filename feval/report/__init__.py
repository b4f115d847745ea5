"""What results look like to people: tables, pictures, a page, and the folder they are written to.
Computes nothing.
"""
