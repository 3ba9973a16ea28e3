// output = (input - mean) / sqrt(var + eps) * weight + bias, for the mean and variance over the last axes. Groups are rows
// of as many elements as these axes have, parameters are columns: each has a weight and a bias.
//
// kernels, bindings, in place, dispatch, workgroup   see shared/norm.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html, https://arxiv.org/abs/1607.06450
#import "shared/norm.wgsl"
