#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#slice = #ttg.slice<{dim = 1, parent = #blocked}>
#shared = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func private @decl(i32, !tt.ptr<f16>) -> (i32, f32)
  tt.func private @decl2(%a: i32 {tt.divisibility = 16 : i32})
  tt.func @f(%p: !tt.ptr<f16>, %c: tensor<32x64xi1, #blocked>, %x: tensor<32x64xf32, #blocked>, %i: i32, %b: i1, %idx: index) -> (i32, f32) {
    %s = arith.select %c, %x, %x : tensor<32x64xi1, #blocked>, tensor<32x64xf32, #blocked>
    %s2 = arith.select %b, %x, %x : tensor<32x64xf32, #blocked>
    %u:2 = arith.addui_extended %i, %i : i32, i1
    %lo, %hi = arith.mulsi_extended %i, %i : i32
    %true = arith.constant true
    %cc = arith.constant {foo.bar = 1 : i32} false
    %c3 = arith.constant {foo.bar = 1 : i32} 3 : i32
    %ix = arith.constant 5 : index
    %cast = arith.index_cast %i : i32 to index
    %un = tt.load %p {amd.pipeliner_part = "prologue"} : !tt.ptr<f16>
    %st = arith.constant dense<1.0> : tensor<32x64xf32, #blocked>
    %dd = arith.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
    %nan = math.isnan %x : tensor<32x64xf32, #blocked>
    %fin = math.isfinite %un : f16
    %add = arith.addf %x, %s fastmath<fast> : tensor<32x64xf32, #blocked>
    %addi = arith.addi %i, %i overflow<nsw, nuw> : i32
    %alloc = ttg.local_alloc {allocation.offset = 32 : i32} : () -> !ttg.memdesc<2x32x64xf32, #shared, #smem, mutable>
    %v = ttg.memdesc_index %alloc[%i] : !ttg.memdesc<2x32x64xf32, #shared, #smem, mutable> -> !ttg.memdesc<32x64xf32, #shared, #smem, mutable>
    %sub = ttg.memdesc_subslice %v[0, 32] : !ttg.memdesc<32x64xf32, #shared, #smem, mutable> -> !ttg.memdesc<32x32xf32, #shared, #smem, mutable, 32x64>
    %tr = ttg.memdesc_trans %v {order = array<i32: 1, 0>} : !ttg.memdesc<32x64xf32, #shared, #smem, mutable> -> !ttg.memdesc<64x32xf32, #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0, 1]}>, #smem, mutable>
    %tok0 = ttg.async_wait {num = 0 : i32}
    %tok1 = ttg.async_wait %tok0 {num = 2 : i32}
    %com = ttg.async_commit_group
    %ld = ttg.local_load %v token %tok1 : !ttg.memdesc<32x64xf32, #shared, #smem, mutable> -> tensor<32x64xf32, #blocked>
    %lbl = scf.execute_region -> i32 {
      cf.br ^bb1(%i : i32)
    ^bb1(%q: i32):
      scf.yield %q : i32
    }
    %sw = scf.index_switch %idx -> i32
    case 2 {
      scf.yield %i : i32
    }
    case 5 {
      scf.yield %c3 : i32
    }
    default {
      scf.yield %i : i32
    }
    %k:2 = scf.for %j = %idx to %ix step %cast iter_args(%a0 = %i, %a1 = %un) -> (i32, f16) {
      scf.yield %a0, %a1 : i32, f16
    } {tt.num_stages = 3 : i32}
    scf.for %j = %i to %c3 step %i : i32 {
    }
    scf.for unsigned %j = %i to %c3 step %i : i32 {
    }
    scf.if %b {
    } else {
      gpu.barrier
    }
    %rank = tt.get_program_id z : i32
    %t = gpu.thread_id x
    %big = arith.bitcast %i : i32 to f32
    %po = ub.poison : tensor<4xf32>
    %casted = builtin.unrealized_conversion_cast %i : i32 to index
    %r0 = "tt.reduce"(%x) <{axis = 1 : i32}> ({
    ^bb0(%a: f32, %bq: f32):
      %m = arith.maxnumf %a, %bq : f32
      tt.reduce.return %m : f32
    }) {allocation.offset = 0 : i32} : (tensor<32x64xf32, #blocked>) -> tensor<32xf32, #ttg.slice<{dim = 1, parent = #blocked}>>
    %e:2 = tt.elementwise_inline_asm "mov $0, $1; // %x -> (\"" {constraints = "=r,=r,r", packed_element = 1 : i32, pure = true} %i : i32 -> i32, f32
    %ext = tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "__nv_cosf"} : (tensor<32x64xf32, #blocked>) -> tensor<32x64xf32, #blocked>
    cf.switch %i : i32, [
      default: ^bb2(%c3 : i32),
      42: ^bb2(%i : i32),
      7: ^bb3
    ]
  ^bb2(%z: i32):
    cf.cond_br %b, ^bb3, ^bb2(%z : i32)
  ^bb3:
    %rr:2 = tt.call @decl(%i, %p) : (i32, !tt.ptr<f16>) -> (i32, f32)
    tt.return %rr#0, %rr#1 : i32, f32
  }
}
