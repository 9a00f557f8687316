"""How good an output is, in numbers that cannot be NaN: undefined cases are refused with a reason.

``frames``   picture against picture: PSNR, SSIM
``control``  output against its controls: edge F1, blur SSIM, depth si-RMSE, mask mIoU
``video``    the clip in time: seams between chunks, flicker along a given motion
"""
