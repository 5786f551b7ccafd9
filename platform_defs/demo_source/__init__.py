"""A literature source on this machine: the protocols of PubMed and Crossref over generated records.

Tests harvest from it, and an embedded platform does out of the box. It makes trouble on request.
"""
