// The forms are assembled here; each is followed by a jump to form_end. Sections collect them.
#include "through/forms.hpp"

#include <cpuid.h>

#include <cstring>

// NOLINTBEGIN(bugprone-macro-parentheses): strings that are joined
#define FORM(section, text)                                             \
  ".pushsection .rodata\n9: .asciz \"" text "\"\n.popsection\n8: " text \
  "\n jmp form_end\n"                                                   \
  ".pushsection " section ",\"aw\"\n.balign 8\n.quad 8b, 9b\n.popsection\n"
#define A(text) FORM("forms_always", text)
#define L(text) FORM("forms_aligned", text)
#define S(text) FORM("forms_sse4", text)
#define V(text) FORM("forms_avx2", text)
#define Z(text) FORM("forms_avx512", text)

// clang-format off
asm(".text\n.intel_syntax noprefix\n"
    // Moves, all widths, both ways, immediates.
    A("mov al, byte ptr [rdi+32]") A("mov ah, byte ptr [rdi+33]") A("mov ax, word ptr [rdi+32]")
    A("mov eax, dword ptr [rdi+32]") A("mov rax, qword ptr [rdi+32]")
    A("mov sil, byte ptr [rdi+32]") A("mov r9b, byte ptr [rdi+32]")
    A("mov r10d, dword ptr [rdi+32]") A("mov r15, qword ptr [rdi+32]")
    A("mov byte ptr [rdi+32], al") A("mov byte ptr [rdi+32], ch") A("mov word ptr [rdi+32], cx")
    A("mov dword ptr [rdi+32], ebx") A("mov qword ptr [rdi+32], rdx")
    A("mov byte ptr [rdi+32], r11b") A("mov qword ptr [rdi+32], r12")
    A("mov qword ptr [rdi+32], rsp") A("mov rbp, qword ptr [rdi+32]")
    A("mov byte ptr [rdi+32], 0x5a") A("mov word ptr [rdi+32], 0x1234")
    A("mov dword ptr [rdi+32], 0x12345678") A("mov qword ptr [rdi+32], -2")
    // Addressing.
    A("mov rax, qword ptr [rdi+r8*8]") A("mov rax, qword ptr [rdi+r8*4+5]")
    A("mov qword ptr [rdi+r8*2+64], rcx") A("mov rax, qword ptr [r13+r8]")
    A("mov rax, qword ptr [r13+32]") A("mov rdi, qword ptr [rdi+32]")
    A("mov r8, qword ptr [rdi+r8*8]") A("mov rax, qword ptr [rsi-1000]")
    A("add qword ptr [r13+r8*8], r9") A("mov eax, dword ptr ds:[rdi+32]")
    A("mov eax, dword ptr cs:[rdi+32]")
    // Extending, swapping bytes, exchanging conditions.
    A("movzx eax, byte ptr [rdi+32]") A("movzx rax, word ptr [rdi+32]")
    A("movzx ax, byte ptr [rdi+32]") A("movsx eax, byte ptr [rdi+32]")
    A("movsx rax, word ptr [rdi+32]") A("movsxd rax, dword ptr [rdi+32]")
    A("cmovz rax, qword ptr [rdi+32]") A("cmovnz rax, qword ptr [rdi+32]")
    A("cmovc ecx, dword ptr [rdi+32]") A("cmovs edx, dword ptr [rdi+32]")
    A("setz byte ptr [rdi+32]") A("setc byte ptr [rdi+32]") A("setle byte ptr [rdi+32]")
    A("movnti dword ptr [rdi+32], eax") A("movnti qword ptr [rdi+32], rax")
    // Arithmetic from memory.
    A("add eax, dword ptr [rdi+32]") A("adc rax, qword ptr [rdi+32]")
    A("sub al, byte ptr [rdi+32]") A("sbb cx, word ptr [rdi+32]") A("and rax, qword ptr [rdi+32]")
    A("or eax, dword ptr [rdi+32]") A("xor rax, qword ptr [rdi+32]")
    A("cmp rax, qword ptr [rdi+32]") A("cmp byte ptr [rdi+32], 0x41")
    A("cmp dword ptr [rdi+32], eax") A("test dword ptr [rdi+32], eax")
    A("test byte ptr [rdi+32], 0x80") A("imul rax, qword ptr [rdi+32]")
    A("imul eax, dword ptr [rdi+32], 77") A("imul rax, qword ptr [rdi+32], 7777777")
    A("mul qword ptr [rdi+32]") A("mul byte ptr [rdi+32]") A("imul dword ptr [rdi+32]")
    A("div byte ptr [rdi+32]") A("div word ptr [rdi+32]") A("div dword ptr [rdi+32]")
    A("div qword ptr [rdi+32]") A("idiv word ptr [rdi+32]") A("idiv dword ptr [rdi+32]")
    A("idiv qword ptr [rdi+32]")
    // To memory.
    A("add byte ptr [rdi+32], al") A("add word ptr [rdi+32], 0x7000")
    A("add dword ptr [rdi+32], eax") A("add qword ptr [rdi+32], 1")
    A("adc qword ptr [rdi+32], rax") A("adc dword ptr [rdi+32], 0x12345678")
    A("sub qword ptr [rdi+32], rax") A("sbb dword ptr [rdi+32], ecx")
    A("and byte ptr [rdi+32], 0x0f") A("or word ptr [rdi+32], cx") A("xor qword ptr [rdi+32], rax")
    A("inc byte ptr [rdi+32]") A("dec word ptr [rdi+32]") A("inc qword ptr [rdi+32]")
    A("neg dword ptr [rdi+32]") A("not qword ptr [rdi+32]") A("shl byte ptr [rdi+32], 3")
    A("shr qword ptr [rdi+32], 1") A("sar dword ptr [rdi+32], cl") A("rol word ptr [rdi+32], cl")
    A("ror qword ptr [rdi+32], 13") A("rcl dword ptr [rdi+32], 1") A("rcr qword ptr [rdi+32], cl")
    A("shld qword ptr [rdi+32], rax, 9") A("shrd dword ptr [rdi+32], eax, cl")
    // Bits, also those that the register names far from the operand.
    A("bt dword ptr [rdi+32], 5") A("bts qword ptr [rdi+32], 41") A("btr word ptr [rdi+32], 9")
    A("btc dword ptr [rdi+32], 31") A("bt qword ptr [rdi+64], rbx")
    A("bts qword ptr [rdi+64], rbx") A("btr dword ptr [rdi+64], ebx")
    A("btc word ptr [rdi+64], bx") A("bts qword ptr [rdi+64], r9") A("btc dword ptr [rdi+64], r9d")
    A("bsf rax, qword ptr [rdi+32]") A("bsr eax, dword ptr [rdi+32]")
    // The stack, and jumps.
    A("push qword ptr [rdi+32]") A("push word ptr [rdi+32]") A("pop qword ptr [rdi+32]")
    A("pop word ptr [rdi+32]") A("jmp qword ptr [rdi+96]") A("call qword ptr [rdi+96]")
    A("jmp qword ptr [rdi+rbx+88]")
    // Strings.
    A("movsb") A("movsw") A("movsd") A("movsq") A("rep movsb") A("rep movsw") A("rep movsd")
    A("rep movsq") A("stosb") A("stosw") A("stosd") A("stosq") A("rep stosb") A("rep stosq")
    A("lodsb") A("lodsw") A("lodsd") A("lodsq") A("rep lodsd") A("scasb") A("scasq")
    A("repne scasb") A("repe scasb") A("repne scasd") A("cmpsb") A("cmpsw") A("cmpsq")
    A("repe cmpsb") A("repne cmpsb") A("repe cmpsd") A("std; rep movsb; cld")
    A("std; rep movsd; cld") A("std; rep stosw; cld") A("std; lodsq; cld")
    A("std; repne scasb; cld") A("std; repe cmpsw; cld") A("lea rdi, [rsi-3]; rep movsb")
    A("lea rdi, [rsi+3]; rep movsb") A("lea rdi, [rsi+1]; rep movsd")
    A("lea rdi, [rsi+16]; rep movsq") A("mov ecx, 3000; rep movsb") A("mov ecx, 1500; rep stosw")
    // One operand in ordinary memory.
    A("mov rdi, r14; rep movsb") A("mov rsi, r14; rep movsq") A("mov rsi, r14; repe cmpsb")
    A("lea rbx, [rdi+32]; xlatb")
    // x87.
    A("fld dword ptr [rdi+32]") A("fld qword ptr [rdi+32]") A("fld tbyte ptr [rdi+32]")
    A("fild word ptr [rdi+32]") A("fild dword ptr [rdi+32]") A("fild qword ptr [rdi+32]")
    A("fst dword ptr [rdi+32]") A("fst qword ptr [rdi+32]") A("fstp dword ptr [rdi+32]")
    A("fstp qword ptr [rdi+32]") A("fstp tbyte ptr [rdi+32]") A("fist word ptr [rdi+32]")
    A("fistp dword ptr [rdi+32]") A("fistp qword ptr [rdi+32]") A("fisttp qword ptr [rdi+32]")
    A("fadd dword ptr [rdi+32]") A("fmul qword ptr [rdi+32]") A("fsubr dword ptr [rdi+32]")
    A("fdiv qword ptr [rdi+32]") A("fiadd word ptr [rdi+32]") A("fcom qword ptr [rdi+32]")
    A("fbld tbyte ptr [rdi+32]") A("fbstp tbyte ptr [rdi+32]") A("fldcw word ptr [rdi+80]")
    A("fnstcw word ptr [rdi+32]") A("fnstsw word ptr [rdi+32]") A("fnstenv [rdi+128]")
    A("fnsave [rdi+128]") A("ldmxcsr dword ptr [rdi+84]") A("stmxcsr dword ptr [rdi+32]")
    // MMX and SSE without alignment.
    A("movd mm1, dword ptr [rdi+32]") A("movq mm2, qword ptr [rdi+32]")
    A("movq qword ptr [rdi+32], mm3") A("paddd mm1, qword ptr [rdi+32]")
    A("movd xmm4, dword ptr [rdi+32]") A("movq xmm4, qword ptr [rdi+32]")
    A("movq qword ptr [rdi+32], xmm5") A("movd dword ptr [rdi+32], xmm5")
    A("movups xmm4, [rdi+32]") A("movups [rdi+32], xmm5") A("movdqu xmm12, [rdi+32]")
    A("movdqu [rdi+32], xmm13") A("movupd [rdi+32], xmm9") A("lddqu xmm4, [rdi+32]")
    A("movss xmm4, dword ptr [rdi+32]") A("movss dword ptr [rdi+32], xmm5")
    A("movsd xmm4, qword ptr [rdi+32]") A("movsd qword ptr [rdi+32], xmm5")
    A("movlps xmm4, qword ptr [rdi+32]") A("movhps xmm4, qword ptr [rdi+32]")
    A("movlpd qword ptr [rdi+32], xmm5") A("movhpd qword ptr [rdi+32], xmm5")
    A("addss xmm4, dword ptr [rdi+32]") A("addsd xmm4, qword ptr [rdi+32]")
    A("mulsd xmm4, qword ptr [rdi+32]") A("divss xmm4, dword ptr [rdi+32]")
    A("sqrtsd xmm4, qword ptr [rdi+32]") A("minss xmm4, dword ptr [rdi+32]")
    A("ucomisd xmm4, qword ptr [rdi+32]") A("comiss xmm4, dword ptr [rdi+32]")
    A("cvtsi2sd xmm4, dword ptr [rdi+32]") A("cvtsi2ss xmm4, qword ptr [rdi+32]")
    A("cvttsd2si rax, qword ptr [rdi+32]") A("cvtss2sd xmm4, dword ptr [rdi+32]")
    A("pinsrw xmm4, word ptr [rdi+32], 3") A("cmpltsd xmm4, qword ptr [rdi+32]")
    A("lea rdi, [rdi+32]; maskmovdqu xmm5, xmm3") A("clflush [rdi+32]")
    // Whole operands with alignment; locked; exchanging.
    L("movaps xmm4, [rdi+32]") L("movaps [rdi+32], xmm5") L("movdqa xmm12, [rdi+32]")
    L("movdqa [rdi+32], xmm13") L("movntdq [rdi+32], xmm5") L("movntps [rdi+32], xmm5")
    L("addps xmm4, [rdi+32]") L("mulpd xmm4, [rdi+32]") L("paddb xmm4, [rdi+32]")
    L("pxor xmm4, [rdi+32]") L("pcmpeqb xmm4, [rdi+32]") L("pshufd xmm4, [rdi+32], 0x1b")
    L("shufps xmm4, [rdi+32], 0x72") L("unpcklps xmm4, [rdi+32]") L("pmullw xmm4, [rdi+32]")
    L("cvtdq2ps xmm4, [rdi+32]") L("andnps xmm4, [rdi+32]") L("psadbw xmm4, [rdi+32]")
    L("fxsave64 [rdi+128]") L("xchg byte ptr [rdi+32], al") L("xchg word ptr [rdi+32], cx")
    L("xchg dword ptr [rdi+32], eax") L("xchg qword ptr [rdi+32], r12")
    L("lock add byte ptr [rdi+32], 3") L("lock add dword ptr [rdi+32], eax")
    L("lock add qword ptr [rdi+32], rax") L("lock sub word ptr [rdi+32], cx")
    L("lock inc qword ptr [rdi+32]") L("lock dec dword ptr [rdi+32]")
    L("lock neg qword ptr [rdi+32]") L("lock not byte ptr [rdi+32]")
    L("lock or qword ptr [rdi+32], 64") L("lock and dword ptr [rdi+32], ecx")
    L("lock xor qword ptr [rdi+32], rdx") L("lock adc qword ptr [rdi+32], rax")
    L("lock xadd dword ptr [rdi+32], eax") L("lock xadd qword ptr [rdi+32], r9")
    L("xadd qword ptr [rdi+32], rcx") L("lock bts qword ptr [rdi+32], 17")
    L("lock btr qword ptr [rdi+64], rbx") L("lock btc dword ptr [rdi+32], 3")
    L("cmpxchg dword ptr [rdi+32], ecx") L("lock cmpxchg qword ptr [rdi+32], rcx")
    L("mov rax, [rdi+32]; lock cmpxchg qword ptr [rdi+32], rcx")
    L("mov al, [rdi+33]; lock cmpxchg byte ptr [rdi+33], dl")
    L("mov ax, [rdi+34]; cmpxchg word ptr [rdi+34], cx") L("lock cmpxchg8b qword ptr [rdi+32]")
    L("lock cmpxchg16b xmmword ptr [rdi+32]")
    L("mov rax, [rdi+32]; mov rdx, [rdi+40]; lock cmpxchg16b xmmword ptr [rdi+32]")
    // SSE3 to SSE4.2 and their like.
    S("movddup xmm4, qword ptr [rdi+32]") S("haddps xmm4, [rdi+32]") S("pshufb xmm4, [rdi+32]")
    S("palignr xmm4, [rdi+32], 5") S("pabsd xmm4, [rdi+32]") S("pinsrb xmm4, byte ptr [rdi+32], 7")
    S("pinsrd xmm4, dword ptr [rdi+32], 2") S("pinsrq xmm4, qword ptr [rdi+32], 1")
    S("pextrb byte ptr [rdi+32], xmm5, 9") S("pextrw word ptr [rdi+32], xmm5, 3")
    S("pextrd dword ptr [rdi+32], xmm5, 3") S("pextrq qword ptr [rdi+32], xmm5, 1")
    S("extractps dword ptr [rdi+32], xmm5, 2") S("insertps xmm4, dword ptr [rdi+32], 0x1d")
    S("pmovzxbw xmm4, qword ptr [rdi+32]") S("pmovsxdq xmm4, qword ptr [rdi+32]")
    S("pblendvb xmm4, [rdi+32]") S("blendps xmm4, [rdi+32], 5") S("ptest xmm4, [rdi+32]")
    S("roundsd xmm4, qword ptr [rdi+32], 1") S("dpps xmm4, [rdi+32], 0xf1")
    S("mpsadbw xmm4, [rdi+32], 3") S("pcmpistri xmm4, [rdi+32], 0x0c")
    S("pcmpestrm xmm4, [rdi+32], 0x40") S("movntdqa xmm4, [rdi+32]")
    S("crc32 eax, byte ptr [rdi+32]") S("crc32 rax, qword ptr [rdi+32]")
    S("popcnt rax, qword ptr [rdi+32]") S("aesenc xmm4, [rdi+32]")
    S("pclmulqdq xmm4, [rdi+32], 0x11") S("movbe eax, dword ptr [rdi+32]")
    S("movbe qword ptr [rdi+32], rax")
    // AVX, AVX2, FMA, BMI.
    V("vmovups ymm4, [rdi+32]") V("vmovups [rdi+32], ymm5") V("vmovdqu xmm12, [rdi+32]")
    V("vmovdqu [rdi+32], ymm13") V("vmovdqa ymm4, [rdi+32]") V("vmovntdq [rdi+32], ymm5")
    V("vaddps ymm4, ymm5, [rdi+32]") V("vpaddd ymm4, ymm13, [rdi+32]")
    V("vmulsd xmm4, xmm5, qword ptr [rdi+32]") V("vpxor ymm14, ymm13, [r13+32]")
    V("vbroadcastss ymm4, dword ptr [rdi+32]") V("vbroadcasti128 ymm4, [rdi+32]")
    V("vpbroadcastb ymm4, byte ptr [rdi+32]") V("vpbroadcastq xmm4, qword ptr [rdi+32]")
    V("vinserti128 ymm4, ymm5, [rdi+32], 1") V("vextracti128 [rdi+32], ymm5, 1")
    V("vextractf128 [rdi+32], ymm5, 0") V("vperm2i128 ymm4, ymm5, [rdi+32], 0x21")
    V("vpermd ymm4, ymm5, [rdi+32]") V("vpermq ymm4, [rdi+32], 0x4e")
    V("vpsllvd ymm4, ymm5, [rdi+32]") V("vpmovzxbd ymm4, qword ptr [rdi+32]")
    V("vpshufb ymm4, ymm5, [rdi+32]") V("vblendvps ymm4, ymm5, [rdi+32], ymm6")
    V("vptest ymm4, [rdi+32]") V("vfmadd231ps ymm4, ymm5, [rdi+32]")
    V("vfmadd132sd xmm4, xmm5, qword ptr [rdi+32]") V("vcvtps2pd ymm4, [rdi+32]")
    V("vcvtph2ps ymm4, [rdi+32]") V("vcvtps2ph [rdi+32], ymm5, 0")
    V("vmaskmovps ymm4, ymm3, [rdi+32]") V("vmaskmovps [rdi+32], ymm3, ymm5")
    V("vmaskmovpd xmm4, xmm3, [rdi+32]") V("vmaskmovpd [rdi+32], ymm3, ymm5")
    V("vpmaskmovd [rdi+32], ymm3, ymm5") V("vpmaskmovq ymm4, ymm3, [rdi+32]")
    V("lea rdi, [rdi+32]; vmaskmovdqu xmm5, xmm3") V("vpgatherdd ymm4, [rdi+ymm1*4], ymm3")
    V("vpgatherdq ymm4, [rdi+xmm1*8], ymm3") V("vgatherqps xmm4, [rdi+ymm2*4], xmm3")
    V("vgatherqpd ymm4, [rdi+ymm2*8+16], ymm3") V("vgatherdps xmm4, [rdi+xmm1*1], xmm3")
    V("vgatherdpd xmm4, [rdi+xmm1*2+64], xmm3") V("vmovss dword ptr [rdi+32], xmm5")
    V("vmovlps xmm4, xmm5, qword ptr [rdi+32]") V("andn rax, rcx, qword ptr [rdi+32]")
    V("bextr rax, qword ptr [rdi+32], rcx") V("pdep rax, rcx, qword ptr [rdi+32]")
    V("shlx rax, qword ptr [rdi+32], rcx") V("rorx rax, qword ptr [rdi+32], 5")
    V("mulx rax, rcx, qword ptr [rdi+32]") V("blsr rax, qword ptr [rdi+32]")
    V("tzcnt rax, qword ptr [rdi+32]")
    // AVX-512: masks, merging, zeroing, broadcasts, short displacements that are scaled.
    Z("vmovdqu8 zmm4, [rdi+64]") Z("vmovdqu8 [rdi+64], zmm5") Z("vmovdqu8 [rdi+64]{k1}, zmm5")
    Z("vmovdqu8 zmm4{k1}, [rdi+64]") Z("vmovdqu8 zmm4{k1}{z}, [rdi+64]")
    Z("vmovdqu16 [rdi+64]{k1}, ymm20") Z("vmovdqu32 zmm21{k2}{z}, [rdi+64]")
    Z("vmovdqu64 [rdi+64]{k1}, xmm22") Z("vmovaps zmm20, [rdi+64]") Z("vmovaps [rdi+64], zmm21")
    Z("vmovups [r13+128]{k1}, zmm21") Z("vmovss xmm4{k2}, dword ptr [rdi+64]")
    Z("vmovsd qword ptr [rdi+64]{k2}, xmm5") Z("vaddps zmm4, zmm5, [rdi+64]")
    Z("vaddps zmm4, zmm5, dword ptr [rdi+64]{1to16}")
    Z("vaddpd zmm24{k1}, zmm5, qword ptr [rdi+64]{1to8}") Z("vpaddd zmm4{k2}{z}, zmm20, [rdi+64]")
    Z("vpermd zmm4{k1}, zmm5, [rdi+64]") Z("vpermb zmm4, zmm5, [rdi+64]")
    Z("vpternlogd zmm4, zmm5, [rdi+64], 0x96") Z("vpcmpub k3, zmm5, [rdi+64], 1")
    Z("vpcmpeqd k4{k1}, zmm5, [rdi+64]") Z("vptestmq k5, zmm5, [rdi+64]")
    Z("vpcompressd [rdi+64]{k1}, zmm5") Z("vcompresspd [rdi+64]{k2}, zmm5")
    Z("vpexpandd zmm4{k1}, [rdi+64]") Z("vexpandps zmm4{k2}{z}, [rdi+64]")
    Z("vpcompressb [rdi+64]{k1}, zmm5") Z("vpmovdb [rdi+64]{k1}, zmm5") Z("vpmovqw [rdi+64], zmm5")
    Z("vpmovsdw [rdi+64]{k2}, zmm5") Z("vpmovzxbw zmm4, [rdi+64]")
    Z("vextracti32x4 [rdi+64]{k1}, zmm5, 3") Z("vinserti64x4 zmm4, zmm5, [rdi+64], 1")
    Z("vbroadcasti32x4 zmm4, [rdi+64]") Z("vpbroadcastd zmm4{k1}, dword ptr [rdi+64]")
    Z("vcvttps2udq zmm4, [rdi+64]") Z("vcvtps2ph [rdi+64]{k1}, zmm5, 0")
    Z("vfmadd213pd zmm4{k1}, zmm5, [rdi+64]") Z("vrndscaleps zmm4, [rdi+64], 0x11")
    Z("vshuff32x4 zmm4, zmm5, [rdi+64], 0x1b") Z("valignq zmm4, zmm5, [rdi+64], 3")
    Z("vpgatherdd zmm4{k1}, [rdi+zmm1*4]") Z("vpgatherqq zmm4{k1}, [rdi+zmm2*8]")
    Z("vgatherdpd zmm24{k1}, [rdi+ymm1*8+64]") Z("vgatherqps ymm4{k2}, [rdi+zmm2*4]")
    Z("vpscatterdd [rdi+zmm1*4]{k1}, zmm5") Z("vpscatterqq [rdi+zmm2*8]{k1}, zmm5")
    Z("vscatterdps [rdi+xmm1*4]{k1}, xmm5") Z("vscatterqps [rdi+ymm2*4]{k2}, xmm5")
    Z("vscatterdpd [rdi+ymm1*8]{k2}, zmm25") Z("kmovq k3, [rdi+64]") Z("kmovw [rdi+64], k1")
    Z("kmovb k6, byte ptr [rdi+64]") Z("kmovd dword ptr [rdi+64], k2")
    ".att_syntax prefix\n");
// clang-format on

asm(R"(
.data
.p2align 3
form_registers: .quad 0
form_code: .quad 0
form_rax: .quad 0
.text
.globl form_run
.type form_run, @function
form_run:
  pushq %rbx
  pushq %rbp
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rdi, form_code(%rip)
  movq %rsi, form_registers(%rip)
  movq %rsp, 136(%rsi)
  movl $0xe7, %eax
  xorl %edx, %edx
  xrstor64 256(%rsi)
  pushq 128(%rsi)
  popfq
  movq 0(%rsi), %rax
  movq 8(%rsi), %rcx
  movq 16(%rsi), %rdx
  movq 24(%rsi), %rbx
  movq 32(%rsi), %rsp
  movq 40(%rsi), %rbp
  movq 56(%rsi), %rdi
  movq 64(%rsi), %r8
  movq 72(%rsi), %r9
  movq 80(%rsi), %r10
  movq 88(%rsi), %r11
  movq 96(%rsi), %r12
  movq 104(%rsi), %r13
  movq 112(%rsi), %r14
  movq 120(%rsi), %r15
  movq 48(%rsi), %rsi
  jmp *form_code(%rip)
.globl form_end
form_end:
  movq %rax, form_rax(%rip)
  movq form_registers(%rip), %rax
  movq %rcx, 8(%rax)
  movq %rdx, 16(%rax)
  movq %rbx, 24(%rax)
  movq %rsp, 32(%rax)
  movq %rbp, 40(%rax)
  movq %rsi, 48(%rax)
  movq %rdi, 56(%rax)
  movq %r8, 64(%rax)
  movq %r9, 72(%rax)
  movq %r10, 80(%rax)
  movq %r11, 88(%rax)
  movq %r12, 96(%rax)
  movq %r13, 104(%rax)
  movq %r14, 112(%rax)
  movq %r15, 120(%rax)
  movq 136(%rax), %rsp
  pushfq
  popq 128(%rax)
  cld
  movq form_rax(%rip), %rcx
  movq %rcx, 0(%rax)
  movq %rax, %rcx
  movl $0xe7, %eax
  xorl %edx, %edx
  xsave64 256(%rcx)
  fninit
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbp
  popq %rbx
  ret
.size form_run, .-form_run
)");
// NOLINTEND(bugprone-macro-parentheses)

extern "C" {
void form_run(const void* code, void* registers);
void form_end();
#define SECTION(name)                            \
  extern const cmi::test::Form __start_##name[]; \
  extern const cmi::test::Form __stop_##name[]
SECTION(forms_always);
SECTION(forms_aligned);
SECTION(forms_sse4);
SECTION(forms_avx2);
SECTION(forms_avx512);
#undef SECTION
}

namespace cmi::test {

namespace {

constexpr size_t kStackSize = 256 * 1024;
alignas(64) std::byte g_stack[kStackSize];

struct Layout {
  unsigned offset[8] = {}, length[8] = {};
};
Layout layout() {
  Layout l;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  for (unsigned i : {2u, 5u, 6u, 7u}) {
    unsigned c = 0, d = 0;
    if ((low >> i & 1) != 0) __get_cpuid_count(0xd, i, &l.length[i], &l.offset[i], &c, &d);
  }
  return l;
}

uint64_t next(uint64_t* seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 17;
}

}  // namespace

std::span<const Form> forms(Needs needs) {
  __builtin_cpu_init();
  const auto all = [](const Form* from, const Form* to) {
    return std::span<const Form>(from, static_cast<size_t>(to - from));
  };
  switch (needs) {
    case Needs::kAlways:
      return all(__start_forms_always, __stop_forms_always);
    case Needs::kAligned:
      return all(__start_forms_aligned, __stop_forms_aligned);
    case Needs::kSse4:
      if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("aes") ||
          !__builtin_cpu_supports("pclmul")) {
        return {};
      }
      return all(__start_forms_sse4, __stop_forms_sse4);
    case Needs::kAvx2:
      if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
          !__builtin_cpu_supports("bmi2")) {
        return {};
      }
      return all(__start_forms_avx2, __stop_forms_avx2);
    case Needs::kAvx512:
      if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw") ||
          !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vbmi2")) {
        return {};
      }
      return all(__start_forms_avx512, __stop_forms_avx512);
  }
  return {};
}

std::byte* form_stack() { return g_stack + kStackSize - 4096; }

void Registers::fill(std::byte* memory, std::byte* other) {
  std::memset(this, 0, sizeof *this);
  uint64_t seed = 7;
  for (uint64_t& r : gpr) r = next(&seed) ^ (next(&seed) << 32);
  gpr[kRax] = 0x8877665544330123;
  gpr[kRcx] = 7;
  gpr[kRdx] = 5;
  gpr[kRbx] = 8;
  gpr[kRsp] = reinterpret_cast<uint64_t>(form_stack());
  gpr[kRsi] = reinterpret_cast<uint64_t>(memory) + 1024;
  gpr[kRdi] = reinterpret_cast<uint64_t>(memory);
  gpr[kR8] = 3;
  gpr[9] = static_cast<uint64_t>(-77);  // bits before the operand
  gpr[13] = reinterpret_cast<uint64_t>(memory);
  gpr[kR14] = reinterpret_cast<uint64_t>(other);
  flags = 0x202 | 1 | 0x40;  // carry, zero
  const Layout l = layout();
  for (size_t i = 160; i < 416; ++i) state[i] = static_cast<std::byte>(next(&seed));
  for (unsigned c : {2u, 6u, 7u}) {
    for (size_t i = 0; i < l.length[c]; ++i) {
      state[l.offset[c] + i] = static_cast<std::byte>(next(&seed));
    }
  }
  for (size_t i = 0; i < l.length[5]; ++i) {
    state[l.offset[5] + i] = static_cast<std::byte>(next(&seed));
  }
  // Indices of 4 bytes in vector 1, of 8 bytes in vector 2.
  const auto set = [&](unsigned n, const void* bytes) {
    const auto* from = static_cast<const std::byte*>(bytes);
    std::memcpy(state + 160 + 16 * n, from, 16);
    if (l.length[2] != 0) std::memcpy(state + l.offset[2] + 16 * n, from + 16, 16);
    if (l.length[6] != 0) std::memcpy(state + l.offset[6] + 32 * n, from + 32, 32);
  };
  int32_t narrow[16];
  int64_t wide[8];
  for (int i = 0; i < 16; ++i) narrow[i] = (i * 5 + 2) % 16 - 4;
  for (int i = 0; i < 8; ++i) wide[i] = (i * 3 + 1) % 8 - 2;
  set(1, narrow);
  set(2, wide);
  // x87: two values, 80 bits each.
  const uint16_t control = 0x37f, top = 6 << 11;
  std::memcpy(state, &control, sizeof control);
  std::memcpy(state + 2, &top, sizeof top);
  state[4] = std::byte{0xc0};  // the two registers that are in use
  const unsigned char one_and_a_half[10] = {0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0x3f};
  const unsigned char minus_ten[10] = {0, 0, 0, 0, 0, 0, 0, 0xa0, 0x02, 0xc0};
  std::memcpy(state + 32, one_and_a_half, 10);
  std::memcpy(state + 48, minus_ten, 10);
  const uint32_t mxcsr = 0x1f80;
  std::memcpy(state + 24, &mxcsr, sizeof mxcsr);
  uint64_t present = 3;
  for (unsigned c : {2u, 5u, 6u, 7u}) {
    if (l.length[c] != 0) present |= uint64_t{1} << c;
  }
  std::memcpy(state + 512, &present, sizeof present);
}

void run(const Form& form, Registers* registers) { form_run(form.code, registers); }

uint64_t form_end_address() { return reinterpret_cast<uint64_t>(&form_end); }

size_t visible_state(const Registers& r, std::byte* out) {
  const Layout l = layout();
  size_t n = 0;
  const auto add = [&](size_t from, size_t length) {
    std::memcpy(out + n, r.state + from, length);
    n += length;
  };
  add(0, 6);   // control, status and tags of x87
  add(24, 4);  // MXCSR
  for (size_t i = 0; i < 8; ++i) add(32 + 16 * i, 10);
  add(160, 256);
  for (unsigned c : {2u, 5u, 6u, 7u}) add(l.offset[c], l.length[c]);
  return n;
}

}  // namespace cmi::test
