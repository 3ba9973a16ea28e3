// Numbers of workgroups and invocations in a launch that was folded into two dimensions (`Dispatch::linear`).

fn linear_workgroup(workgroup_id: vec3<u32>, num_workgroups: vec3<u32>) -> u32 {
    return workgroup_id.x + workgroup_id.y * num_workgroups.x;
}

// Number of the invocation in the whole launch, for workgroups of one dimension of `size` invocations.
fn linear_invocation(workgroup_id: vec3<u32>, num_workgroups: vec3<u32>, local_index: u32, size: u32) -> u32 {
    return linear_workgroup(workgroup_id, num_workgroups) * size + local_index;
}
