"""Where and when each control acts: weight maps, their token weights, and the fusion they steer.

``maps``      numbers, masks, files and class rules become one map per control (NumPy only)
``resample``  pixel grid -> latent grid -> tokens
``fusion``    the rule over controls, and the weighted sum of the branches' residuals
"""
