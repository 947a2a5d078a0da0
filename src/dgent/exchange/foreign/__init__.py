"""Import and export of the cupboard: folders of the original program, and files of the beads tracker."""
