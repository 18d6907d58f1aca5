"""Tests of listings: each kind on the real thing, and the law of shares on all of them."""
