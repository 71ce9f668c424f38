"""Stream entries in, deliveries out: take -> claim -> deliver -> decide -> settle."""
