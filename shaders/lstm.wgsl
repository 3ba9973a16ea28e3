// One time step of an LSTM, after the matrix products (matmul.wgsl) have left in `gates` what the input and the previous
// hidden state contribute.
//
//   cell       i, f, o = sigmoid(gates + biases), g = tanh(gates + biases); c = f * c_previous + i * g; h = o * tanh(c)
//   grad_cell  from the gradients of h and c at this step those of the gates before activation, and of c_previous
//
// Gates lie as [i, f, g, o], each of H units. With VEC an element is four units, else one.
//
// bindings   cell: bias_ih [4H], bias_hh [4H], gates [B, T, 4H], cells [B, T, H], hidden [B, T, H], last_hidden [B, H],
//            last_cell [B, H], c0 [B, H] (HAS_INITIAL)
//            grad_cell: gates, cells, grad_hidden [B, H] from the next step, carry [B, H] (gradient of c, from step to step),
//            grad_gates [B, T, 4H], grad_output [B, T, H] (GRAD_OUTPUT), grad_last_cell [B, H] (GRAD_CELL), c0 (HAS_INITIAL)
// in place   grad_cell: gates
// dispatch   one invocation per element of [B, H], 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html
#import "shared/index.wgsl"

struct Params {
    // Elements of [B, H], and of [H].
    elements: u32,
    units: u32,
    steps: u32,
    step: u32,
    // grad_cell: 1 where grad_hidden holds something.
    has_grad_hidden: u32,
}
var<immediate> params: Params;

#ifdef VEC
alias Element = Storage4;
alias Value = Accum4;
#else
alias Element = Storage;
alias Value = Accum;
#endif

// Beyond this tanh is 1 in f32; some drivers overflow further out.
const TANH_LIMIT = 15.0;

fn safe_tanh(x: Value) -> Value {
    return tanh(clamp(x, Value(-TANH_LIMIT), Value(TANH_LIMIT)));
}

fn sigmoid(x: Value) -> Value {
    return Value(0.5) * safe_tanh(Value(0.5) * x) + Value(0.5);
}

#ifdef ENTRY_cell
@group(0) @binding(0) var<storage, read> bias_ih: array<Element>;
@group(0) @binding(1) var<storage, read> bias_hh: array<Element>;
@group(0) @binding(2) var<storage, read_write> gates: array<Element>;
@group(0) @binding(3) var<storage, read_write> cells: array<Element>;
@group(0) @binding(4) var<storage, read_write> hidden: array<Element>;
@group(0) @binding(5) var<storage, read_write> last_hidden: array<Element>;
@group(0) @binding(6) var<storage, read_write> last_cell: array<Element>;
#ifdef HAS_INITIAL
@group(0) @binding(7) var<storage, read> c0: array<Element>;
#endif

@compute @workgroup_size(64)
fn cell(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let n = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if n >= params.elements {
        return;
    }
    let sample = n / params.units;
    let unit = n - sample * params.units;
    let row = sample * params.steps + params.step;
    let at = row * params.units + unit;
    let gate_at = row * 4u * params.units + unit;
    #for g in 0..4
    let at#g = gate_at + #g * params.units;
    let z#g = Value(gates[at#g]) + Value(bias_ih[#g * params.units + unit]) + Value(bias_hh[#g * params.units + unit]);
    #end
    var previous = Value(0.0);
    if params.step > 0u {
        previous = Value(cells[at - params.units]);
    } else {
#ifdef HAS_INITIAL
        previous = Value(c0[n]);
#endif
    }
    let i = sigmoid(z0);
    let f = sigmoid(z1);
    let g = safe_tanh(z2);
    let o = sigmoid(z3);
    let c = f * previous + i * g;
    let h = o * safe_tanh(c);
    gates[at0] = Element(i);
    gates[at1] = Element(f);
    gates[at2] = Element(g);
    gates[at3] = Element(o);
    cells[at] = Element(c);
    hidden[at] = Element(h);
    if params.step + 1u == params.steps {
        last_hidden[n] = Element(h);
        last_cell[n] = Element(c);
    }
}
#endif

#ifdef ENTRY_grad_cell
#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> gates: array<Element>;
#endif
@group(0) @binding(1) var<storage, read> cells: array<Element>;
@group(0) @binding(2) var<storage, read> grad_hidden: array<Element>;
@group(0) @binding(3) var<storage, read_write> carry: array<Element>;
@group(0) @binding(4) var<storage, read_write> grad_gates: array<Element>;
#ifdef GRAD_OUTPUT
@group(0) @binding(5) var<storage, read> grad_output: array<Element>;
#endif
#ifdef GRAD_CELL
@group(0) @binding(6) var<storage, read> grad_last_cell: array<Element>;
#endif
#ifdef HAS_INITIAL
@group(0) @binding(7) var<storage, read> c0: array<Element>;
#endif

fn gate(at: u32) -> Value {
#ifdef IN_PLACE_0
    return Value(grad_gates[at]);
#else
    return Value(gates[at]);
#endif
}

@compute @workgroup_size(64)
fn grad_cell(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let n = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if n >= params.elements {
        return;
    }
    let sample = n / params.units;
    let unit = n - sample * params.units;
    let row = sample * params.steps + params.step;
    let at = row * params.units + unit;
    let gate_at = row * 4u * params.units + unit;
    #for g in 0..4
    let at#g = gate_at + #g * params.units;
    #end
    let i = gate(at0);
    let f = gate(at1);
    let g = gate(at2);
    let o = gate(at3);
    var previous = Value(0.0);
    if params.step > 0u {
        previous = Value(cells[at - params.units]);
    } else {
#ifdef HAS_INITIAL
        previous = Value(c0[n]);
#endif
    }
    var dh = Value(0.0);
    if params.has_grad_hidden == 1u {
        dh = Value(grad_hidden[n]);
    }
#ifdef GRAD_OUTPUT
    dh += Value(grad_output[at]);
#endif
    var dc = Value(0.0);
    if params.step + 1u < params.steps {
        dc = Value(carry[n]);
    } else {
#ifdef GRAD_CELL
        dc = Value(grad_last_cell[n]);
#endif
    }
    let tanh_c = safe_tanh(Value(cells[at]));
    dc += dh * o * (Value(1.0) - tanh_c * tanh_c);
    grad_gates[at0] = Element(dc * g * i * (Value(1.0) - i));
    grad_gates[at1] = Element(dc * previous * f * (Value(1.0) - f));
    grad_gates[at2] = Element(dc * i * (Value(1.0) - g * g));
    grad_gates[at3] = Element(dh * tanh_c * o * (Value(1.0) - o));
    carry[n] = Element(dc * f);
}
#endif
