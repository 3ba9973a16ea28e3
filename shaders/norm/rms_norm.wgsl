// output = input / sqrt(mean of input^2 + eps) * weight, for the mean over the last axes. Groups are rows of as many
// elements as these axes have, parameters are columns: each has a weight.
//
// kernels, bindings, in place, dispatch, workgroup   see shared/norm.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html, https://arxiv.org/abs/1910.07467
#import "shared/norm.wgsl"
