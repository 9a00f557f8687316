"""What steers: one file per control, taken from the user or the simulator, or extracted from RGB.

``base``      the clip that a control hands to its branch
``edge``      Canny edges, five presets
``vis``       blur, five presets
``depth``     metric or relative depth as a near-is-bright picture
``seg``       class ids as a picture of fixed colours
``registry``  the controls by name, estimators for depth and segmentation, and the one way in
"""
