// output = (input - mean) / sqrt(var + eps) * weight + bias, for input [N, C, ...] and the mean and variance of each sample
// over a group of neighbouring channels. Weight and bias are those of a channel.
//
// kernels, bindings, in place, dispatch, workgroup   see shared/norm.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html, https://arxiv.org/abs/1803.08494
#import "shared/norm.wgsl"
