"""A store on another machine, over HTTP."""
