"""One file for each resource. `app.py` lists the routers."""
