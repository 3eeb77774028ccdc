#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#s = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
tt.func @f(%p: !tt.ptr<i32>, %n: i32, %q: tensor<128x!tt.ptr<i32>, #blocked>, %x: tensor<128xi32, #blocked>, %y: tensor<128xi32, #blocked>, %m: !ttg.memdesc<128xi32, #s, #smem, mutable>, %f: f32, %b: i1, %mask: tensor<128xi1, #blocked>) {
%w = ttg.warp_id
%r = ttg.local_gather %m[%x] {axis = 0 : i32} : !ttg.memdesc<128xi32, #s, #smem, mutable>, tensor<128xi32, #blocked> -> tensor<128xi32, #blocked>
ttg.local_scatter %m[%x], %y {axis = 0 : i32} : !ttg.memdesc<128xi32, #s, #smem, mutable>, tensor<128xi32, #blocked>, tensor<128xi32, #blocked>
%p1 = math.fpowi %f, %n : f32, i32
%s1, %c1 = math.sincos %f : f32
%t1 = nvvm.read.ptx.sreg.tid.x : i32
%e1 = llvm.intr.expect %b, %b : i1
%cl = gpu.cluster_id x
%mi = arith.minimumf %f, %f : f32
tt.return
}
}
