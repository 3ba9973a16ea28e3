// output = (input - mean) / sqrt(var + eps) * weight + bias, and with RELU max(output, 0), for input [N, C, ...] and given
// statistics [C], which no gradient goes to. Groups are channels: so are parameters.
//
// kernels, bindings, in place, dispatch, workgroup   see shared/norm.wgsl; normalize without MEAN and BIAS is the gradient
//            where backward does not need the input
// source     https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html
#import "shared/norm.wgsl"
