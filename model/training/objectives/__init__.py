"""What a run can learn, one file each; `base` is the seam."""
