// output = (input - mean) / sqrt(var + eps) * weight + bias, and with RELU max(output, 0), for input [N, C, ...] and the
// mean and variance of each channel over all samples and places. Groups are channels: so are parameters.
//
// kernels, bindings, in place, dispatch, workgroup   see shared/norm.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html, https://arxiv.org/abs/1502.03167
#import "shared/norm.wgsl"
