/*
 * cmi.h: the public interface of CMI, the Coherent Memory Interface. Nodes share segments of memory
 * and use them with plain loads and stores. C11, and valid C++17; the names and structures here are
 * the whole portable interface, what this implementation adds is in <cmi/ofi/cmi_impl.h>.
 *
 * Each comment names in brackets the page of the specification that it follows:
 * [libcmi(3), seg_get] or [cmi(5), CMI Events].
 *
 * Rules for every function
 * - Only cmi_ini() and cmi_get_error() are symbols; the rest are entries of the context's function
 *   tables and are called through CMIFN(). No entry is ever NULL.
 * - A thread registers with cmi_ini() or ini_th() before it calls anything else, and ends with
 *   fini(). Registered threads may call every function at the same time, without locks of their
 *   own.
 * - Failure is -1, NULL or CMI_SEG_INVALID, and the calling thread's cmi_get_error() gives the
 *   cause. What a call writes through its pointers is valid only if the call succeeded, unless it
 *   says otherwise.
 * - Three checks come before all others, in this order: a context pointer that is not this
 *   process's context is CMI_ERR_INVAL and is not followed; an unregistered thread is CMI_ERR_INIT
 *   (ini_th() excepted); then the arguments. "Errors" below lists these only where they mean more
 *   than that.
 * - Most calls look into what the processes of the node share. Where one of these holds what a call
 *   needs and does not run, as when it is stopped, the call gives up after 5 s, has done nothing,
 *   and fails with CMI_ERR_RECONFIG: try again later. "Errors" below does not repeat this, either.
 * - A child of fork() has no context: there every call with the parent's fails with CMI_ERR_INIT,
 *   and the views of segments are not mapped. The parent goes on as before. The child may begin a
 *   context of its own with cmi_ini().
 * - Pointers given to the library may point into attached segments.
 *
 * Environment, read by cmi_ini(); a value that cannot be parsed fails it with CMI_ERR_INVAL
 *   CMI_PROVIDER     libfabric providers, as fi_info -p takes them, with commas; default: the best.
 *                    What cannot keep these promises fails cmi_ini() with CMI_ERR_NOTSUPP
 *   CMI_ADDRESS      addresses or interfaces, with commas, or "auto"; default: loopback only
 *   CMI_FAULT        "signal" (default) or "thread": how faults on imported segments are taken.
 * With "thread" system calls may be given their addresses (else they fail with EFAULT where a page
 * is not cached); where the process may not have that, cmi_ini() fails with CMI_ERR_NOTSUPP
 *   CMI_KERNEL       use only what Linux of this version has, as 6.1, at least 5.19; default: all
 *                    that there is
 *   CMI_NODE         name of the node; two names on one machine are two nodes; default: the machine
 *   CMI_RUNTIME_DIR  where the node keeps its shared state, on a tmpfs (else CMI_ERR_NOTSUPP): a
 *                    folder of the effective user's with mode 0700 (else CMI_ERR_PERM), or one that
 *                    is not there yet, and is made, in a folder that is (else CMI_ERR_INVAL);
 *                    default: /dev/shm/cmi-UID, with a number behind it where others took that
 *   CMI_MEM_MAX      memory that segments may take on this node, as far as the machine has it free;
 *                    default: half of the RAM
 *   CMI_DEAD_AFTER   milliseconds of silence until a peer counts as dead, 1000 to 3600000; 10000
 *   CMI_JOIN_TIMEOUT the same that seg_imp() waits for a home that listens; default: 30000
 *   CMI_LOCAL        "on" or "off": imports whose home is on the same machine map its pages, if it
 *                    has it on too; default: on, but off where CMI_PROVIDER names providers alone
 *   CMI_FATAL_LINE   "on" (default) or "off": one line on standard error where a process dies of a
 *                    CMI exception that it has no handler for
 *   CMI_SECRET       what offerer and finder of cmi_ofi_offer() know where they meet over tcp, 1 to
 *                    1024 bytes; default: none
 *   CMI_TRACE        facility[,facility]:level, as if set in cmi_cbs; default: off
 *   CMI_TRACE_FILE   where trace lines go without callbacks; default: standard error
 * For its own tests, and read by a library alone that was built for them (CMI_FAULT_INJECTION)
 *   CMI_FAULT_POINT  makes the library fail on purpose
 *   CMI_FAULT_COUNT  a file in which it counts the points that it has come by
 */
#ifndef CMI_H
#define CMI_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__GNUC__)
#define CMI_EXPORT __attribute__((visibility("default")))
#else
#define CMI_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ------------------------------------------------------------------------------- */

/**
 * The newest interface version that this header knows, as a verno: ten times the API version, so
 * that 10 is 1.0 and 11 is 1.1. Vernos of one major version (10 to 19, 20 to 29) are compatible
 * with each other, those of different major versions are not. [cmi(5), CMI Context]
 */
#define CMI_VERNO 11

/** cmi_base.vendor of this implementation: "OF". */
#define CMI_VENDOR_OFI 0x4f46
/** cmi_base.device of this implementation: coherence in software. */
#define CMI_DEVICE_SOFT 1

/* ---- Objects [cmi(5), CMI Objects] ---------------------------------------------------------- */

/** The head of a context, a remote segment handle, a token and a node address: 8 bytes. */
typedef struct cmi_base {
  uint16_t verno;  /**< context: the version agreed on; others: the version that made the object */
  uint16_t vendor; /**< CMI_VENDOR_OFI */
  uint32_t device; /**< CMI_DEVICE_SOFT */
} cmi_base;

/*
 * The next three are flat: a base, then opaque bytes that this header does not show, without
 * pointers. sizeof is therefore too small. Ask attr_get() for the number of bytes, then memcpy()
 * them, store them, send them to any other node. All their bytes, those of the base too, are
 * little-endian on every machine. They carry their own length and are checked in full when they
 * come back in: one that is truncated, damaged, of another vendor or of a version still unknown is
 * CMI_ERR_INVAL.
 */

/** Remote segment handle: names an exported segment in the whole cluster. CMI_ATTR_RSEG_SIZE. */
typedef struct cmi_rseg {
  cmi_base base;
} cmi_rseg;

/** Access token: the right to use an exported segment from afar. A secret. CMI_ATTR_TOKEN_SIZE. */
typedef struct cmi_token {
  cmi_base base;
} cmi_token;

/**
 * Node address: names a node and a context on it. Node-specific tokens and CMI_CTL_NODE_ADDR_CMP
 * look at the node alone; context-down events mean the context. CMI_ATTR_NODEADDR_SIZE.
 */
typedef struct cmi_naddr {
  cmi_base base;
} cmi_naddr;

/** For tok_new(): a token for every node. A constant to pass on, never to follow. */
#ifdef __cplusplus
#define CMI_NADDR_ANY (reinterpret_cast<cmi_naddr*>(static_cast<uintptr_t>(1)))
#else
#define CMI_NADDR_ANY ((cmi_naddr*)(uintptr_t)1)
#endif

/** Segment id, > 0 when valid. One for the whole node; not reused while it is attached anywhere. */
typedef int32_t cmi_seg;
/** What seg_get(), seg_getva() and seg_imp() return on failure. */
#define CMI_SEG_INVALID (-1)
/** In CMI_CTL_CACHE_RSEG_SET: every segment that the caller exported or imported. */
#define CMI_SEG_ALL (-2)

/** Flush epoch of one thread; NULL is none. Opaque, of use to the thread that opened it alone. */
typedef struct cmi_flush_epoch* cmi_fb;

/** Rights of a token: one or more CMI_ACC_ bits. */
typedef uint32_t cmi_acc;
#define CMI_ACC_READ 0x1u   /**< loads */
#define CMI_ACC_WRITE 0x2u  /**< stores; without READ for write-through imports only */
#define CMI_ACC_ATOMIC 0x4u /**< atm_cas() */

struct cmi_fns_10;
struct cmi_fns_11;

/**
 * The context of a process: what cmi_ini() returned. The library owns it, it is valid until the
 * last registered thread has called fini(), and clients only read it. More members may follow.
 */
typedef struct cmi_ctxt {
  cmi_base base;    /**< base.verno is the version agreed on; in this machine's byte order */
  uint64_t caps;    /**< CMI_CAP_ bits of what works in this process */
  cmi_naddr* naddr; /**< this context's address; send its CMI_ATTR_NODEADDR_SIZE bytes to peers */
  const struct cmi_fns_10* fns10; /**< reached by CMIFN(); never NULL, no entry is NULL */
  const struct cmi_fns_11* fns11; /**< likewise; complete even if version 10 was agreed on */
} cmi_ctxt;

/* Bits of cmi_ctxt.caps. */
#define CMI_CAP_EXTENSIBLE_SEGMENTS UINT64_C(0x01) /**< CMI_SEG_EXTENSIBLE and CMI_SEG_BRK */
#define CMI_CAP_NODE_SPECIFIC_TOKEN UINT64_C(0x02) /**< tok_new() for a single node */
#define CMI_CAP_WRITE_THROUGH UINT64_C(0x04)       /**< seg_exp() with CMI_SEG_WRITE_THROUGH */
#define CMI_CAP_THREAD_ENABLE UINT64_C(0x08)       /**< cmi_enb() works for each thread by itself */
#define CMI_CAP_MIXED_CONSIST UINT64_C(0x10)       /**< segments of both consistency modes */

/* ---- Errors [cmi(5), Error Handling] -------------------------------------------------------- */

/** Why a call failed: see cmi_get_error(). */
typedef enum cmi_error {
  CMI_ERR_NONE = 0,                 /**< nothing failed */
  CMI_ERR_INIT = 1,                 /**< the calling thread is not registered */
  CMI_ERR_INVAL = 2,                /**< an argument, an object or the environment is not valid */
  CMI_ERR_NOMEM = 3,                /**< out of memory, space or slots; or a buffer is too small */
  CMI_ERR_PERM = 4,                 /**< the caller may not do this; only the owner may */
  CMI_ERR_NOTSUPP = 5,              /**< not supported by this version, platform or process */
  CMI_ERR_NOTSUP = CMI_ERR_NOTSUPP, /**< another spelling */
  CMI_ERR_BOUND = 6,                /**< exists already, and there can be one only */
  CMI_ERR_HW = 7,                   /**< a fault of the local hardware, provider or network */
  CMI_ERR_STORE = 8,                /**< stores were lost on the way to their home */
  CMI_ERR_RECONFIG = 9              /**< quiesced, or a process of this node holds what is needed
                                         and does not run; try again later */
} cmi_error;

/*
 * Exceptions [cmi(5), Delivering CMI Exceptions]. A load or store that cannot be done raises a real
 * SIGSEGV in the thread that did it, for the handler that the client installed with sigaction() and
 * SA_SIGINFO. There, info->si_code is SEGV_CMI and
 *   si_errno   one of CMI_ERROR_
 *   si_addr    the address of the access
 *   si_id      the segment, an int
 *   si_pc      the instruction, a void *
 * Returning from the handler does the access again, siglongjmp() gives it up. Without a handler, or
 * with SIGSEGV blocked or ignored, the process dies by SIGSEGV.
 */
#define CMI_ERROR_ENABLE 1    /**< the thread has not called cmi_enb(ctxt, 1) */
#define CMI_ERROR_TOKEN 2     /**< no token set, or it was revoked, or the segment was removed */
#define CMI_ERROR_ACCESS 3    /**< token or view does not allow this kind of access */
#define CMI_ERROR_SINVAL 4    /**< the exported segment is gone, or its home is dead */
#define CMI_ERROR_UE 5        /**< the home's memory has an uncorrectable error there */
#define CMI_ERROR_TRANSIENT 6 /**< the home cannot be reached for now; may be tried again */
#define CMI_ERROR_SEG_BRK 7   /**< beyond the break of an extensible segment */
#define CMI_ERROR_CONSIST 8   /**< in flux since a node died; see CMI_SEG_RECO */

/** si_code of CMI exceptions. */
#ifndef SEGV_CMI
#define SEGV_CMI 0x434d
#endif
/* Members of glibc's siginfo_t that do not overlap si_addr stand in for si_id and si_pc. */
#if defined(__GLIBC__)
#ifndef si_id
#define si_id _sifields._rt.si_sigval.sival_int
#endif
#ifndef si_pc
#define si_pc _sifields._sigfault._bounds._addr_bnd._upper
#endif
#endif

/* ---- Flags ---------------------------------------------------------------------------------- */

/*
 * Flags of seg_get(); seg_getva() takes them too. CLIENT_CONSIST and CLIENT_INCONSIST exclude each
 * other (CMI_ERR_INVAL); with neither, the context's default holds. No flag of one call has the
 * value of another call's flag, so that a mixed up one is noticed: an unknown bit is
 * CMI_ERR_NOTSUPP in seg_get(), seg_getva(), seg_at() and seg_exp(), and CMI_ERR_INVAL elsewhere.
 */
#define CMI_SEG_NORESERVE 0x0001        /**< do not reserve memory; may run out on access */
#define CMI_SEG_LOCK 0x0002             /**< keep out of swap; the caller touches the pages first */
#define CMI_SEG_LARGE_PAGES 0x0004      /**< pages of 2 MiB at home; see seg_get() */
#define CMI_SEG_EXTENSIBLE 0x0008       /**< starts with a break of 0; size is the maximum */
#define CMI_SEG_CLIENT_CONSIST 0x0010   /**< the client keeps data consistent when a node dies */
#define CMI_SEG_CLIENT_INCONSIST 0x0020 /**< it does not: bytes in flux need CMI_SEG_RECO */

/* Flags of seg_at(). */
#define CMI_SEG_READ 0x0100 /**< a view for loads; a store raises CMI_ERROR_ACCESS */

/* Attributes of seg_exp(). */
#define CMI_SEG_WRITE_THROUGH 0x1000 /**< importers do not cache; stores go home at once */

/* Bits of cmi_ds.status.st_flags, set by CMI_SEG_STATUS. */
#define CMI_SEG_ST_EXPORTED 0x01u  /**< seg_exp() was called for it */
#define CMI_SEG_ST_IMPORTED 0x02u  /**< it came from seg_imp() */
#define CMI_SEG_ST_REMOVED 0x04u   /**< marked for deletion, still attached somewhere on the node */
#define CMI_SEG_ST_QUIESCED 0x08u  /**< between CMI_EVENT_QUIESCE and CMI_EVENT_RESUME */
#define CMI_SEG_ST_TOKEN_SET 0x10u /**< imported, and CMI_SEG_TOKEN has set a token */
#define CMI_SEG_ST_INCONSIST 0x20u /**< in part in flux; told where it was made or is attached */

/* Trace facilities, bits of cmi_cbs.trace_facilities. [libcmi(3), cmi_ini] */
#define CMI_TRACE_FAC_INI 0x01u  /**< cmi_ini, ini_th, fini */
#define CMI_TRACE_FAC_CTRL 0x02u /**< cmi_ctl, seg_ctl, attr_get */
#define CMI_TRACE_FAC_SEG 0x04u  /**< seg_get, seg_exp, seg_imp, seg_at, seg_dt, rseg_del */
#define CMI_TRACE_FAC_TOK 0x08u  /**< tok_new, tok_del */
#define CMI_TRACE_FAC_EVT 0x10u  /**< evt_get, evt_ret */
#define CMI_TRACE_FAC_MEM 0x20u  /**< cmi_enb, epochs, barriers, cflush, atm_cas */
#define CMI_TRACE_FAC_ALL 0x3fu  /**< all of them */

/* Trace levels, values of cmi_cbs.trace_level; each includes those below it. */
#define CMI_TRACE_LVL_NONE 0u    /**< no trace */
#define CMI_TRACE_LVL_ERROR 1u   /**< what failed */
#define CMI_TRACE_LVL_WARN 2u    /**< what works, but not as one would want */
#define CMI_TRACE_LVL_INFO 3u    /**< rare, normal events */
#define CMI_TRACE_LVL_DEBUG 4u   /**< single calls */
#define CMI_TRACE_LVL_HIGHEST 5u /**< everything */

/* ---- Commands ------------------------------------------------------------------------------- */

/*
 * Commands of seg_ctl(), with the member of cmi_ds that each uses, and who may give it: anybody on
 * the node, the process that created the segment, or the one that imported it; others get
 * CMI_ERR_PERM. No command of one call has the value of another call's: an unknown one is
 * CMI_ERR_INVAL. [libcmi(3), seg_ctl]
 */
#define CMI_SEG_RM 0x101            /**< mark for deletion; again: success. Creator, importer */
#define CMI_SEG_TOKEN 0x102         /**< ds.token, in: set the token of an import. Importer */
#define CMI_SET_TOKEN CMI_SEG_TOKEN /**< another spelling */
#define CMI_SEG_STATUS 0x103        /**< ds.status, out. Anybody */
#define CMI_SEG_CHECK 0x104         /**< ds.reco, in and out: what of a range is in flux. Creator */
#define CMI_SEG_RECO 0x105          /**< ds.reco, in: declare a range recovered. Creator */
#define CMI_SEG_BRK 0x106  /**< ds.brk, in: set the break of an extensible segment. Creator */
#define CMI_SEG_INFO 0x107 /**< ds.info, out: size, alignment, flags. Anybody */

/* Commands of cmi_ctl(), with the member of cmi_ctl_cfg that each uses. [libcmi(3), cmi_ctl] */
#define CMI_CTL_INFO 0x201            /**< info, out: limits and units */
#define CMI_CTL_CACHE_RSEG_SET 0x202  /**< cache, in: bytes of local cache */
#define CMI_CTL_CACHE_RSEG_GET 0x203  /**< cache: seg_hndl in, mpool_sz out */
#define CMI_CTL_RECONF_TOUT 0x204     /**< rcfg, in: longest wait for a home */
#define CMI_CTL_CLIENT_CONSIST 0x205  /**< cfg may be NULL: default of later seg_get() */
#define CMI_CTL_NODE_CMAP_GET 0x206   /**< cmap, in: ask for one CMI_EVENT_CMAP */
#define CMI_CTL_MEM_RESERVE 0x207     /**< mreq, in and out: make or resize the reservation */
#define CMI_CTL_MEM_RESERVE_DEL 0x208 /**< cfg may be NULL: delete the reservation in use */
#define CMI_CTM_MEM_RESERVE_DEL CMI_CTL_MEM_RESERVE_DEL /**< another spelling */
#define CMI_CTL_MEM_RESERVE_SET 0x209 /**< mreq.rsv_key, in: use that reservation; 0: use none */
#define CMI_CTL_NODE_ADDR_CMP 0x20a   /**< ncmp, in and out: which addresses are of the same node */

/*
 * Attributes for attr_get(); each is a size_t, in bytes. The first two are upper bounds for the
 * segment over every attribute of seg_exp(), and work for imported segments too.
 * [libcmi(3), attr_get]
 */
#define CMI_ATTR_RSEG_SIZE 0x301     /**< of what seg_exp() returns for the segment */
#define CMI_ATTR_TOKEN_SIZE 0x302    /**< of what tok_new() returns for the segment */
#define CMI_ATTR_NODEADDR_SIZE 0x303 /**< of a node address; the segment is ignored */

/* ---- Structures ----------------------------------------------------------------------------- */

/**
 * The client's callbacks, for cmi_ini(), which copies the structure. A member that is NULL or 0
 * means the library's own way. The callbacks run on any thread, also on threads of the library and
 * on several at once, but never in a signal handler; they must not call CMI functions.
 * [libcmi(3), cmi_ini]
 */
typedef struct cmi_cbs {
  /** Like malloc(): memory aligned for any type, or NULL. alloc and free come together. */
  void* (*alloc)(size_t size, void* arg);
  /** Takes back what alloc returned. */
  void (*free)(void* ptr, void* arg);
  /** Receives the trace lines of level CMI_TRACE_LVL_ERROR. msg is valid during the call. */
  void (*alert)(void* arg, const char* msg);
  /** Receives all other trace lines. */
  void (*log)(void* arg, const char* msg);
  void* arg;                 /**< handed to each callback */
  uint32_t trace_facilities; /**< CMI_TRACE_FAC_ bits; 0: nothing is traced */
  uint32_t trace_level;      /**< one of CMI_TRACE_LVL_ */
} cmi_cbs;

/** CMI_CTL_INFO. Sizes are bytes. */
struct cmi_cfg_info {
  size_t max_mem_avail;            /**< free for segments at this moment */
  size_t max_mem_cfg;              /**< configured for segments on this node */
  size_t max_seg_sz;               /**< largest segment */
  uint32_t max_exp_segs;           /**< exported segments */
  uint32_t max_imp_segs;           /**< imported segments */
  uint32_t max_write_through_segs; /**< write-through segments; 0: not supported */
  uint32_t max_acc_toks;           /**< tokens in force at once */
  uint32_t max_acc_stok;           /**< tokens in force at once for one segment */
  uint32_t cur_exp_segs;           /**< segments exported now */
  uint32_t cur_imp_segs;           /**< segments imported now */
  size_t cache_line_sz;            /**< unit of events, CMI_SEG_CHECK and CMI_SEG_RECO: 4096 */
  size_t max_reco_segsz;      /**< longest range of one CHECK or RECO; multiple of cache_line_sz */
  size_t prot_units;          /**< segment sizes and breaks are multiples of this */
  size_t seg_alloc_units;     /**< what segments take is rounded up to this; 1: no rounding */
  size_t seg_alignment;       /**< attach addresses of normal segments are multiples of this */
  size_t seg_lrgpg_alignment; /**< the same for CMI_SEG_LARGE_PAGES */
};

/** CMI_CTL_CACHE_RSEG_SET and CMI_CTL_CACHE_RSEG_GET. */
struct cmi_cfg_cache {
  /**
   * A segment that the caller created or imported. SET with CMI_SEG_ALL: every current one, and
   * the default of later imports; GET with it is CMI_ERR_INVAL.
   */
  cmi_seg seg_hndl;
  size_t mpool_sz; /**< bytes of local cache, > 0; has an effect on imports, is kept for others */
};

/** CMI_CTL_RECONF_TOUT. */
struct cmi_cfg_rcfg {
  /** ms until an access to a silent home raises TRANSIENT; > 0; not set: CMI_DEAD_AFTER */
  uint32_t rcfg_tout;
};

/** CMI_CTL_NODE_CMAP_GET. */
struct cmi_cfg_cmap {
  uint64_t cmap_reqid; /**< comes back as einfo_reqid; any value but 0 */
};

/** CMI_CTL_MEM_RESERVE and CMI_CTL_MEM_RESERVE_SET. [cmi(5), Memory Reservation] */
struct cmi_cfg_mreq {
  size_t mem_reserve; /**< RESERVE, in: bytes; not less than are in use */
  size_t mem_allocd;  /**< RESERVE, out, on failure too: bytes of the reservation in use */
  uint64_t rsv_key;   /**< RESERVE, out if new: its key, never 0; SET, in: a key, or 0 for none */
};

/** CMI_CTL_NODE_ADDR_CMP. */
struct cmi_cfg_ncmp {
  cmi_naddr* ncmp_naddr;  /**< in: the address to look for */
  cmi_naddr** ncmp_caddr; /**< in: array of addresses to compare it with */
  uint32_t ncmp_addrs;    /**< in: length of ncmp_caddr and of ncmp_midx; out: number of matches */
  uint32_t* ncmp_midx;    /**< the caller's array; out: indexes into ncmp_caddr that match */
};

union cmi_cfg_op {
  struct cmi_cfg_info info;
  struct cmi_cfg_cache cache;
  struct cmi_cfg_rcfg rcfg;
  struct cmi_cfg_cmap cmap;
  struct cmi_cfg_mreq mreq;
  struct cmi_cfg_ncmp ncmp;
};

/**
 * Operand of cmi_ctl(). The command says which member counts. cfg.op.info.prot_units,
 * cfg.info.prot_units and cfg.ctl_cfg_prot_units are one and the same.
 */
typedef struct cmi_ctl_cfg {
  union {
    union cmi_cfg_op op;
    struct cmi_cfg_info info;
    struct cmi_cfg_cache cache;
    struct cmi_cfg_rcfg rcfg;
    struct cmi_cfg_cmap cmap;
    struct cmi_cfg_mreq mreq;
    struct cmi_cfg_ncmp ncmp;
  };
} cmi_ctl_cfg;

/* The specification's names for the members of cmi_ctl_cfg. */
#define ctl_cfg_max_mem_avail op.info.max_mem_avail
#define ctl_cfg_max_mem_cfg op.info.max_mem_cfg
#define ctl_cfg_max_seg_sz op.info.max_seg_sz
#define ctl_cfg_max_exp_segs op.info.max_exp_segs
#define ctl_cfg_max_imp_segs op.info.max_imp_segs
#define ctl_cfg_max_write_through_segs op.info.max_write_through_segs
#define ctl_cfg_max_acc_toks op.info.max_acc_toks
#define ctl_cfg_max_acc_stok op.info.max_acc_stok
#define ctl_cfg_cur_exp_segs op.info.cur_exp_segs
#define ctl_cfg_cur_imp_segs op.info.cur_imp_segs
#define ctl_cfg_cache_line_sz op.info.cache_line_sz
#define ctl_cfg_max_reco_segsz op.info.max_reco_segsz
#define ctl_cfg_prot_units op.info.prot_units
#define ctl_cfg_seg_alloc_units op.info.seg_alloc_units
#define ctl_cfg_seg_alignment op.info.seg_alignment
#define ctl_cfg_seg_lrgpg_alignment op.info.seg_lrgpg_alignment
#define ctl_cfg_seg_hndl op.cache.seg_hndl
#define ctl_cfg_mpool_sz op.cache.mpool_sz
#define ctl_cfg_rcfg_tout op.rcfg.rcfg_tout
#define ctl_cfg_cmap_reqid op.cmap.cmap_reqid
#define ctl_cfg_mem_reserve op.mreq.mem_reserve
#define ctl_cfg_mem_allocd op.mreq.mem_allocd
#define ctl_cfg_rsv_key op.mreq.rsv_key
#define ctl_cfg_ncmp_naddr op.ncmp.ncmp_naddr
#define ctl_cfg_ncmp_caddr op.ncmp.ncmp_caddr
#define ctl_cfg_ncmp_addrs op.ncmp.ncmp_addrs
#define ctl_cfg_ncmp_midx op.ncmp.ncmp_midx

/** CMI_SEG_TOKEN. */
struct cmi_ds_token {
  cmi_token* tok; /**< copied by the call; replaces an earlier one */
};

/** CMI_SEG_STATUS. */
struct cmi_ds_status {
  uint32_t st_flags;   /**< CMI_SEG_ST_ bits */
  uint32_t st_nattach; /**< views of the segment on the whole node */
  pid_t st_owner;      /**< the process that created or imported it */
};

/** CMI_SEG_CHECK and CMI_SEG_RECO: an address in one of the caller's own views, and a length. */
struct cmi_ds_reco {
  /**
   * In: start of the range, multiple of cache_line_sz. CHECK, out: the lowest address in flux; with
   * large pages that of a whole one, which may begin before the range. RECO takes whole ones.
   */
  void* reco_addr;
  /**
   * In: bytes, multiple of cache_line_sz, at most max_reco_segsz. CHECK, out: length of the
   * lowest stretch in flux; 0: nothing in the range is.
   */
  size_t reco_size;
};

/** CMI_SEG_BRK. */
struct cmi_ds_brk {
  size_t seg_brksz; /**< the new break in bytes from the start; multiple of prot_units, or 0 */
};

/** CMI_SEG_INFO; the same on the home node and for imports. */
struct cmi_ds_info {
  size_t seg_align;  /**< attach addresses are multiples of this, in bytes */
  size_t seg_sz;     /**< bytes, as given to seg_get() */
  size_t seg_brk;    /**< break in bytes; equals seg_sz if the segment is not extensible */
  int32_t seg_flags; /**< flags, as given to seg_get() or implied by CMI_CTL_CLIENT_CONSIST */
};

union cmi_ds_op {
  struct cmi_ds_token token;
  struct cmi_ds_status status;
  struct cmi_ds_reco reco;
  struct cmi_ds_brk brk;
  struct cmi_ds_info info;
};

/**
 * Operand of seg_ctl(). The command says which member counts. ds.op.reco.reco_addr and
 * ds.reco.reco_addr are one and the same.
 */
typedef struct cmi_ds {
  union {
    union cmi_ds_op op;
    struct cmi_ds_token token;
    struct cmi_ds_status status;
    struct cmi_ds_reco reco;
    struct cmi_ds_brk brk;
    struct cmi_ds_info info;
  };
} cmi_ds;

/* ---- Events [cmi(5), CMI Events] ------------------------------------------------------------ */

/**
 * What happened. Causes come before effects: HW, then CMAP, then the contexts that are down. A
 * segment marked for deletion has no more events.
 */
typedef enum cmi_event_type {
  CMI_EVENT_QUIESCE = 1,       /**< seg: stop using the segment, then evt_ret() */
  CMI_EVENT_RESUME = 2,        /**< seg: it may be used again */
  CMI_EVENT_RCTXT_DOWN = 3,    /**< down: a context that imported segments of ours has ended */
  CMI_EVENT_HCTXT_DOWN = 4,    /**< down: a context that exported segments to us has ended */
  CMI_EVENT_STORE_FAILURE = 5, /**< serr: stores did not reach their home */
  CMI_EVENT_HW = 6,            /**< serr: the same, by a fault of the local hardware */
  CMI_EVENT_CMAP = 7           /**< cmap: nodes that cannot be reached */
} cmi_event_type;

/** What the client says about an event to evt_ret(). */
typedef enum cmi_event_ret {
  CMI_EVENT_RET_DONE = 0,  /**< dealt with */
  CMI_EVENT_RET_FAILED = 1 /**< not; after CMI_EVENT_QUIESCE: abort the process */
} cmi_event_ret;

/** CMI_EVENT_QUIESCE, CMI_EVENT_RESUME. */
typedef struct cmi_einfo_seg {
  cmi_seg einfo_seg;
} cmi_einfo_seg;

/** CMI_EVENT_RCTXT_DOWN, CMI_EVENT_HCTXT_DOWN. */
typedef struct cmi_einfo_down {
  cmi_naddr* einfo_naddr; /**< the context that ended */
  uint32_t einfo_nsegs;   /**< length of einfo_segs */
  cmi_seg* einfo_segs;    /**< RCTXT: our exports that it used; HCTXT: our imports from it */
} cmi_einfo_down;

/** CMI_EVENT_STORE_FAILURE, CMI_EVENT_HW. */
typedef struct cmi_einfo_serr {
  cmi_seg einfo_seg;
  uint32_t einfo_naddrs; /**< length of einfo_addr; 0: the segment is not attached here */
  void** einfo_addr;     /**< in the receiver's lowest view, multiples of cache_line_sz */
} cmi_einfo_serr;

/** CMI_EVENT_CMAP. */
typedef struct cmi_einfo_cmap {
  uint64_t einfo_reqid;    /**< cmap_reqid of the request; 0: nobody asked */
  uint32_t einfo_nnodes;   /**< length of einfo_nodes */
  cmi_naddr** einfo_nodes; /**< the nodes that are disconnected from this context */
} cmi_einfo_cmap;

union cmi_event_info {
  cmi_einfo_seg seg;
  cmi_einfo_down down;
  cmi_einfo_serr serr;
  cmi_einfo_cmap cmap;
};

/**
 * An event. It and all that it points to belong to the library and are valid until evt_ret().
 * event->info.seg and event->seg are one and the same.
 */
typedef struct cmi_event {
  cmi_event_type type;
  cmi_ctxt* ctxt; /**< the context that evt_get() was called with */
  union {
    union cmi_event_info info;
    cmi_einfo_seg seg;
    cmi_einfo_down down;
    cmi_einfo_serr serr;
    cmi_einfo_cmap cmap;
  };
} cmi_event;

/* ---- Functions: threads of a context -------------------------------------------------------- */

/*
 * For each function NAME that CMIFN() reaches there is a function type cmi_fn_NAME. Unless
 * something else is said, a function that returns int returns 0 on success and -1 on failure.
 */

/**
 * Registers the calling thread. cmi_ini() has done it for its own thread. [libcmi(3), ini_th]
 * Errors: CMI_ERR_BOUND, it is registered already; CMI_ERR_NOMEM, too many threads or no memory;
 * CMI_ERR_INVAL, not this process's context.
 */
typedef int cmi_fn_ini_th(cmi_ctxt* ctxt);

/**
 * Takes the calling thread off the register; its open epoch is closed. The thread may register
 * again as long as another one is registered. With the last thread the context ends as if the
 * process had: its views fault, its segments are marked for deletion, remote contexts hear of it;
 * ctxt is invalid then, and cmi_ini() starts afresh. A thread that ends without fini() is taken off
 * as well. [libcmi(3), fini]
 * Errors: CMI_ERR_INIT, CMI_ERR_INVAL.
 */
typedef int cmi_fn_fini(cmi_ctxt* ctxt);

/**
 * Opens (enable not 0) or closes (0) imported segments to loads, stores and atm_cas() of the
 * calling thread; outside they raise CMI_ERROR_ENABLE. Threads start closed. Saying it twice is no
 * error. Segments attached on their home node are not affected. [libcmi(3), cmi_enb]
 * It is looked at when an access faults. So a closed thread still reaches what an open one of its
 * process has mapped of cached imports, and nothing while no thread is open; a context with
 * CMI_CAP_THREAD_ENABLE has no such gap.
 * Errors: CMI_ERR_NOMEM.
 */
typedef int cmi_fn_cmi_enb(cmi_ctxt* ctxt, int enable);

/* ---- Functions: queries and settings -------------------------------------------------------- */

/**
 * Asks for one of CMI_ATTR_. [libcmi(3), attr_get]
 *   seg     a segment id of this node, imported ones included; ignored for CMI_ATTR_NODEADDR_SIZE
 *   optval  where the answer goes: a size_t
 *   optlen  in: bytes at optval; out: bytes of the answer, also if the call fails with
 *           CMI_ERR_NOMEM
 * Errors: CMI_ERR_INVAL, unknown attribute or segment, or a pointer is NULL; CMI_ERR_NOMEM, *optlen
 * is too small.
 */
typedef int cmi_fn_attr_get(cmi_ctxt* ctxt, cmi_seg seg, int32_t cmd, void* optval, size_t* optlen);

/**
 * Queries or sets something of the context: one of CMI_CTL_. [libcmi(3), cmi_ctl]
 *   cfg  operand and result, see the command; NULL is allowed for CLIENT_CONSIST and
 *        MEM_RESERVE_DEL
 * CLIENT_CONSIST cannot be taken back; single segments may still ask for CMI_SEG_CLIENT_INCONSIST.
 * MEM_RESERVE makes a reservation and uses it, or resizes the one in use. Reservations outlive
 * their context and are shared by processes of one effective user, until they are deleted and the
 * last segment made from them is gone.
 * NODE_CMAP_GET is answered by one event for each request, after rcfg_tout and a moment at most.
 * Errors: CMI_ERR_INVAL, unknown command, bad operand, cmap_reqid, rcfg_tout or mpool_sz of 0, a
 * reservation that is less than what is in use, a key that is unknown or deleted, nothing to
 * delete, an invalid node address; CMI_ERR_NOMEM, more reserved than is available, the node has 64
 * reservations, or too many maps wait to be taken; CMI_ERR_PERM, somebody else's segment or
 * reservation; CMI_ERR_NOTSUPP, the platform cannot.
 */
typedef int cmi_fn_cmi_ctl(cmi_ctxt* ctxt, int32_t cmd, cmi_ctl_cfg* cfg);

/* ---- Functions: segments [cmi(5), CMI Segment, Segment Lifetime] ---------------------------- */

/**
 * Creates a segment on this node, its home. All bytes are 0. It is marked for deletion by
 * CMI_SEG_RM or when this process ends, in whatever way, and goes with the last view. Whoever
 * creates segments has to call evt_get() now and then. [libcmi(3), seg_get]
 *   size   bytes, > 0, a multiple of prot_units (CMI_CTL_INFO), at most max_seg_sz
 *   flags  0 or the flags of seg_get() above
 * With CMI_SEG_LARGE_PAGES the memory is whole pages of 2 MiB, taken now unless CMI_SEG_NORESERVE
 * is given too; importers cache it in pages of the usual size. The segment is attached at multiples
 * of seg_lrgpg_alignment, on every node, and is in flux and recovered by whole large pages; with
 * CMI_SEG_EXTENSIBLE, size and breaks are multiples of one. No reservation is used.
 * Returns: the segment's id, or CMI_SEG_INVALID.
 * Errors: CMI_ERR_INVAL, bad size or flags that exclude each other; CMI_ERR_NOTSUPP, unknown flag,
 * or the kernel has no large pages; CMI_ERR_NOMEM, memory or free large pages do not suffice;
 * CMI_ERR_PERM, not allowed to lock or to take as much.
 */
typedef cmi_seg cmi_fn_seg_get(cmi_ctxt* ctxt, size_t size, int32_t flags);

/**
 * Maps a segment into the process: one more view, for all its threads. A segment may have several
 * views with different flags. On the home node a view is ordinary shared memory; a view of an
 * import fetches pages when they are touched. Accesses of 1 to 64 bytes may cross pages, and nodes
 * that store to neighbouring bytes do not disturb each other; only atm_cas() is atomic between
 * nodes. [libcmi(3), seg_at]
 *   seg    a segment of this node, created or imported by whatever process
 *   addr   where, a multiple of seg_align (CMI_SEG_INFO); NULL: the library chooses
 *   flags  0 for loads and stores, or CMI_SEG_READ
 * Returns: the address of the view, or NULL.
 * Errors: CMI_ERR_INVAL, unknown or removed segment, or misaligned address; CMI_ERR_NOTSUPP,
 * unknown flag; CMI_ERR_NOMEM, out of memory, or part of the range is in use (nothing is ever
 * mapped over); CMI_ERR_PERM, no access to the segment; CMI_ERR_RECONFIG, it is quiesced: try again
 * after CMI_EVENT_RESUME; or as for all calls, also where the process that made it does not answer
 * within CMI_CTL_RECONF_TOUT.
 */
typedef void* cmi_fn_seg_at(cmi_ctxt* ctxt, cmi_seg seg, void* addr, int32_t flags);

/**
 * Unmaps the view that seg_at() returned as addr, that exact address. What was stored through it is
 * not lost: the call takes as long as it takes to bring that home, while the home answers. What is
 * lost with a home that died, or no longer answers, is told by CMI_EVENT_STORE_FAILURE before the
 * call returns, which succeeds all the same. The caller sees to it that no thread is in there.
 * [libcmi(3), seg_dt]
 * Errors: CMI_ERR_INVAL, seg has no view at addr. Of seg_getva(), the view then stays:
 * CMI_ERR_NOMEM, no memory to give the client's back; CMI_ERR_HW, some of it is broken.
 */
typedef int cmi_fn_seg_dt(cmi_ctxt* ctxt, cmi_seg seg, void* addr);

/**
 * Does one of the commands of seg_ctl() above. [libcmi(3), seg_ctl]
 *   ds  operand and result, see the command; ignored by CMI_SEG_RM
 * RM: nobody can attach, export or import it any more, remote accesses raise CMI_ERROR_TOKEN, and
 * CMI_ERROR_SINVAL once the last view at home is gone. Views on the home node work until detached.
 * TOKEN: the rights take effect for all processes of the node. A revoked token is accepted, and the
 * access raises CMI_ERROR_TOKEN. RECO: what is in the range counts as consistent again. BRK: when
 * it has returned 0, every node sees the new break; memory that a higher break adds is 0. RM, BRK:
 * tok_del() says what may still be loaded after a failure, or where a process was stopped and
 * blocks SIGBUS.
 * Errors: CMI_ERR_INVAL, unknown segment or command, ds is NULL, the token is damaged or another
 * segment's, seg is not an import (TOKEN), not extensible (BRK), beyond its size (BRK), or a range
 * is misaligned, too long or not in a view (CHECK, RECO); CMI_ERR_PERM, another process's segment,
 * or the token is for another node; CMI_ERR_NOMEM, no memory for the new break, or the node's
 * registry was held from the middle of the call on: the break is as before (BRK); or no memory to
 * open what was recovered, of which CHECK tells the rest (RECO); CMI_ERR_RECONFIG, the former token
 * has not ended within CMI_CTL_RECONF_TOUT, the new one is not set (TOKEN); it is done, but an
 * importer may still load what it has cached, as for tok_del() (RM, BRK); or as for all calls.
 */
typedef int cmi_fn_seg_ctl(cmi_ctxt* ctxt, cmi_seg seg, int32_t cmd, cmi_ds* ds);

/**
 * Makes a segment available to other nodes. May be called again, with other attributes too; at any
 * time it is imported either cached or write-through, not both. [libcmi(3), seg_exp]
 *   seg     a segment that this process created
 *   attrib  0 or CMI_SEG_WRITE_THROUGH: importers make each load and store at the home
 * Returns: the handle, or NULL. The library owns it: copy CMI_ATTR_RSEG_SIZE bytes, then
 * rseg_del().
 * Errors: CMI_ERR_INVAL, unknown, imported or removed; CMI_ERR_NOTSUPP, unknown attribute or no
 * CMI_CAP_WRITE_THROUGH; CMI_ERR_PERM, another process's; CMI_ERR_NOMEM, too many exports or no
 * memory.
 */
typedef cmi_rseg* cmi_fn_seg_exp(cmi_ctxt* ctxt, cmi_seg seg, int32_t attrib);

/**
 * Frees the library's copy of a handle, found by its content. The segment stays exported and copies
 * of the handle can still be imported; to end that, revoke the tokens or remove the segment.
 * [libcmi(3), rseg_del]
 * Errors: CMI_ERR_INVAL, not a handle, or none that is to be freed; CMI_ERR_PERM, another
 * context's.
 */
typedef int cmi_fn_rseg_del(cmi_ctxt* ctxt, cmi_rseg* rseg);

/**
 * Makes a segment of an exported one, for all processes of this node; on the home node too, where
 * it is a remote segment like any other. It can be used once CMI_SEG_TOKEN has set a token. Each
 * call gives a new id. Whoever imports has to call evt_get() now and then. [libcmi(3), seg_imp]
 *   rseg  the bytes of the handle, received from its maker
 * Returns: the segment's id, or CMI_SEG_INVALID.
 * Errors: CMI_ERR_INVAL, damaged handle, removed segment, a conflict of cached with write-through,
 * a write-through segment without CMI_CAP_WRITE_THROUGH here, the home has ended, no provider is
 * common to both sides, or the home cannot be reached: not within the reconfiguration timeout, or,
 * where its listener answers, CMI_JOIN_TIMEOUT; CMI_ERR_NOMEM, too many imports, no memory or no
 * descriptors; CMI_ERR_PERM, not allowed.
 */
typedef cmi_seg cmi_fn_seg_imp(cmi_ctxt* ctxt, cmi_rseg* rseg);

/* ---- Functions: tokens [cmi(5), CMI Access Control] ----------------------------------------- */

/**
 * Makes a token for a segment that this process created; it need not be exported yet.
 * [libcmi(3), tok_new]
 *   naddr  an address of the only node that may use it, or CMI_NADDR_ANY
 *   flags  one or more CMI_ACC_ bits
 * Returns: the token, or NULL. The library owns it: copy CMI_ATTR_TOKEN_SIZE bytes. It is in force
 * until tok_del() or the end of the segment.
 * Errors: CMI_ERR_INVAL, unknown, imported or removed segment, bad address, no right or an unknown
 * one; CMI_ERR_BOUND, the node has a token for it already (never with CMI_NADDR_ANY); CMI_ERR_PERM,
 * another process's segment; CMI_ERR_NOMEM, too many tokens or no memory; CMI_ERR_HW, the provider
 * cannot register the memory; CMI_ERR_NOTSUPP, its keys are longer than 64 bytes.
 */
typedef cmi_token* cmi_fn_tok_new(cmi_ctxt* ctxt, cmi_seg seg, cmi_naddr* naddr, cmi_acc flags);

/**
 * Revokes a token, found by its content, and frees the library's copy. When it has returned 0,
 * every access with it raises CMI_ERROR_TOKEN, on every node: each importer has answered, or its
 * lease is over, or it is dead. So too in a process that was stopped as a whole and is woken, but
 * for threads that block SIGBUS, have closed their access or could have no timer
 * (RLIMIT_SIGPENDING): these may load what was cached until the service thread runs, 7 to 50 ms as
 * far as was seen. Stores not yet written back are not applied: the importer's flush says
 * CMI_ERR_STORE. Other tokens of the segment are not affected.
 * [libcmi(3), tok_del]
 * Errors: CMI_ERR_INVAL, not a token, or not in force; CMI_ERR_PERM, another context's;
 * CMI_ERR_RECONFIG, it is revoked, but an importer that does not answer may still load what it has
 * cached: within CMI_CTL_RECONF_TOUT (5 s at least), where that is set, it has neither answered nor
 * been declared dead. The library goes on ending it; the same call made again waits for that.
 */
typedef int cmi_fn_tok_del(cmi_ctxt* ctxt, cmi_token* tok);

/* ---- Functions: stores on their way home [cmi(5), CMI Memory Model, Flush barriers] --------- */

/**
 * Compares and swaps a 64-bit word, atomically among all nodes. Stores made before it are visible
 * everywhere when it returns, and the caller's process reads the new value. [libcmi(3), atm_cas]
 *   addr    the word, 8-byte aligned, in a view of a local or imported segment
 *   cmpval  stored is swpval if, and only if, *addr was cmpval
 *   rval    out: what *addr was, so that *rval == cmpval means swapped; an address in private
 *           memory
 * Errors: CMI_ERR_INVAL, misaligned, in no view, or rval is NULL; CMI_ERR_STORE, stores made before
 * it could not be brought home, whatever has lost them, and nothing was swapped; CMI_ERR_HW, the
 * connection ended, or memory ran out, so that nobody knows whether the words were swapped (an
 * exception first, if there is more to say than that: a handler that leaves it for good does not
 * know either); CMI_ERR_NOMEM, no memory, or, in an extensible segment that another process of this
 * node made, the registry stayed held, and nothing was swapped. What the segment does not allow,
 * and a home that does not answer within CMI_CTL_RECONF_TOUT, is an exception in the caller:
 * CMI_ERROR_ACCESS for a read-only view or a token without CMI_ACC_ATOMIC, and the others as for a
 * load.
 */
typedef int cmi_fn_atm_cas(cmi_ctxt* ctxt, uint64_t* addr, uint64_t cmpval, uint64_t swpval,
                           uint64_t* rval);

/**
 * Full barrier: what comes before it is done, its stores visible on the home and on every other
 * node, before anything that follows. Stores that other threads of the process made before are
 * covered too. [libcmi(3), mb_fn]
 * It waits for homes as long as they answer. One that says nothing is declared dead after
 * CMI_DEAD_AFTER; what a home that seems to live owes for 5 s longer than that counts as lost.
 * Errors: CMI_ERR_STORE, stores were lost, and the importer has an event that names them, or an
 * importer of a segment of this node does not answer; CMI_ERR_HW, they were lost by a fault of this
 * side, and the event is CMI_EVENT_HW; CMI_ERR_NOMEM, no memory, and what was stored may not be
 * visible yet. A loss is said once to each thread.
 */
typedef int cmi_fn_mb_fn(cmi_ctxt* ctxt);

/**
 * Write barrier: like mb_fn(), for stores only. [libcmi(3), wmb_fn]
 * Errors: as mb_fn().
 */
typedef int cmi_fn_wmb_fn(cmi_ctxt* ctxt);

/**
 * Read barrier: loads before it are done before loads after it. A fence of the CPU and nothing
 * more: pages cached here are dropped, or brought up to date, when another node publishes stores to
 * them.
 * [libcmi(3), rmb_fn]
 */
typedef int cmi_fn_rmb_fn(cmi_ctxt* ctxt);

/**
 * Opens the calling thread's flush epoch: from here on its stores to imported segments are tracked
 * for flush_fb(). One per thread. [libcmi(3), open_fb]
 * Returns: the epoch, or NULL.
 * Errors: CMI_ERR_BOUND, one is open; CMI_ERR_NOMEM; CMI_ERR_HW, the local hardware is faulty.
 */
typedef cmi_fb cmi_fn_open_fb(cmi_ctxt* ctxt);

/**
 * Brings all stores since open_fb() or the last flush_fb() home, and waits until every node sees
 * them. [libcmi(3), flush_fb]
 *   epoch  what open_fb() returned to this thread
 * Errors: CMI_ERR_INVAL, not this thread's epoch; CMI_ERR_STORE, stores were lost (network, dead
 * home, revoked token, removed segment); CMI_ERR_HW, they were lost by a fault of this side;
 * CMI_ERR_NOMEM, no memory, and what was stored may not be visible yet. The importer gets
 * CMI_EVENT_STORE_FAILURE or CMI_EVENT_HW.
 */
typedef int cmi_fn_flush_fb(cmi_ctxt* ctxt, cmi_fb epoch);

/**
 * Does what flush_fb() does, then closes the epoch. [libcmi(3), close_fb]
 * Errors: as flush_fb(); with CMI_ERR_INVAL and CMI_ERR_NOMEM it stays open.
 */
typedef int cmi_fn_close_fb(cmi_ctxt* ctxt, cmi_fb epoch);

/**
 * Brings home what was stored to some cache lines, and waits for it. Needs no epoch, disturbs none.
 * An access error is raised as an exception; a home out of reach is waited for. [libcmi(3), cflush]
 * Lines at home are made visible as they are, whoever has changed them: also a device, after direct
 * I/O or RDMA into a view, which no barrier does.
 *   vaddr    addresses in views, each stands for its line of cache_line_sz bytes
 *   addrcnt  their number, >= 0
 * Errors: CMI_ERR_INVAL, vaddr is NULL, addrcnt is negative, or an address is in no view, and
 * nothing was flushed; CMI_ERR_STORE, stores could not be brought home; CMI_ERR_HW, they were lost
 * by a fault of this side; CMI_ERR_NOMEM, no memory.
 */
typedef int cmi_fn_cflush(cmi_ctxt* ctxt, void* vaddr[], int32_t addrcnt);

/* ---- Functions: events [cmi(5), CMI Events] ------------------------------------------------- */

/**
 * Takes the next event of the context, if there is one. Never blocks. No other call of the library
 * waits for evt_ret(). [libcmi(3), evt_get]
 * Returns: the event; NULL with CMI_ERR_NONE: there is none; NULL with another error: the call
 * failed.
 * Errors: CMI_ERR_NOMEM, the event stays for the next call.
 */
typedef cmi_event* cmi_fn_evt_get(cmi_ctxt* ctxt);

/**
 * Gives an event back; it must not be touched afterwards. CMI_EVENT_RET_FAILED aborts the process
 * if the event was CMI_EVENT_QUIESCE. A pointer that is not an event still out is ignored and
 * traced. From a thread that is not registered nothing is given back, and its cmi_get_error() is
 * CMI_ERR_INIT. [libcmi(3), evt_ret]
 */
typedef void cmi_fn_evt_ret(cmi_event* event, cmi_event_ret status);

/* ---- Functions: since version 11; with version 10 agreed on they fail with CMI_ERR_NOTSUPP --- */

/**
 * Makes a segment of memory that the client has mapped already. The memory stays where it is, with
 * its content, and is the segment's first view: seg_dt() of `va` makes it the client's private
 * memory again, with the content that the segment has then, and so does the last fini(). It must
 * be the client's alone in whole pages: not what an allocator keeps beside it, no stack.
 *   va, size  private anonymous memory that may be read and written; both multiples of prot_units
 *             (CMI_CTL_INFO), size > 0
 *   flags     CMI_SEG_NORESERVE, CMI_SEG_CLIENT_CONSIST, CMI_SEG_CLIENT_INCONSIST, as for seg_get()
 * Other threads may load and store there meanwhile; a system call that is given the memory
 * meanwhile may fail with EFAULT. Afterwards it is as any view: gone in forked children. A client
 * that unmaps some of it, or maps something else over it, takes that part out of the view;
 * importers then reach the segment's pages as they were, and never what is mapped there anew.
 * Returns: the segment's id, or CMI_SEG_INVALID.
 * Errors: CMI_ERR_INVAL (not aligned, size 0, some of it is not mapped, is a segment's already, or
 *   holds the calling thread's stack; CONSIST and INCONSIST at once), CMI_ERR_PERM (some of it may
 *   not be read and written), CMI_ERR_NOTSUPP (shared, executable or large-page memory, a mapping
 *   of a file, a stack that grows, memory that another userfaultfd watches; another flag),
 *   CMI_ERR_NOMEM (as seg_get()). On failure the memory is as it was.
 */
typedef cmi_seg cmi_fn_seg_getva(cmi_ctxt* ctxt, void* va, size_t size, int32_t flags);

/**
 * Makes a token for a part of a segment.
 *   va, size  the part: an address in one of the caller's views of it, and bytes; both multiples of
 *             prot_units (CMI_CTL_INFO), size > 0
 *   others    as for tok_new()
 * An importer's access outside of it raises CMI_ERROR_ACCESS. A node still has one token of its
 * own. Returns: the token, or NULL. Errors: as tok_new(); CMI_ERR_INVAL also if the part is not
 * aligned, or not wholly in one view; CMI_ERR_NOTSUPP (a context of version 10).
 */
typedef cmi_token* cmi_fn_tok_newva(cmi_ctxt* ctxt, cmi_seg seg, void* va, size_t size,
                                    cmi_naddr* naddr, cmi_acc flags);

/* ---- Function tables ------------------------------------------------------------------------ */

/** The functions of version 10. Frozen: the order is part of the binary interface. */
struct cmi_fns_10 {
  cmi_fn_atm_cas* atm_cas;
  cmi_fn_attr_get* attr_get;
  cmi_fn_cflush* cflush;
  cmi_fn_close_fb* close_fb;
  cmi_fn_cmi_ctl* cmi_ctl;
  cmi_fn_cmi_enb* cmi_enb;
  cmi_fn_evt_get* evt_get;
  cmi_fn_evt_ret* evt_ret;
  cmi_fn_fini* fini;
  cmi_fn_flush_fb* flush_fb;
  cmi_fn_ini_th* ini_th;
  cmi_fn_mb_fn* mb_fn;
  cmi_fn_open_fb* open_fb;
  cmi_fn_rmb_fn* rmb_fn;
  cmi_fn_rseg_del* rseg_del;
  cmi_fn_seg_at* seg_at;
  cmi_fn_seg_ctl* seg_ctl;
  cmi_fn_seg_dt* seg_dt;
  cmi_fn_seg_exp* seg_exp;
  cmi_fn_seg_get* seg_get;
  cmi_fn_seg_imp* seg_imp;
  cmi_fn_tok_del* tok_del;
  cmi_fn_tok_new* tok_new;
  cmi_fn_wmb_fn* wmb_fn;
};

/** The functions of version 11: those of version 10 in the same places, then what is new. */
struct cmi_fns_11 {
  cmi_fn_atm_cas* atm_cas;
  cmi_fn_attr_get* attr_get;
  cmi_fn_cflush* cflush;
  cmi_fn_close_fb* close_fb;
  cmi_fn_cmi_ctl* cmi_ctl;
  cmi_fn_cmi_enb* cmi_enb;
  cmi_fn_evt_get* evt_get;
  cmi_fn_evt_ret* evt_ret;
  cmi_fn_fini* fini;
  cmi_fn_flush_fb* flush_fb;
  cmi_fn_ini_th* ini_th;
  cmi_fn_mb_fn* mb_fn;
  cmi_fn_open_fb* open_fb;
  cmi_fn_rmb_fn* rmb_fn;
  cmi_fn_rseg_del* rseg_del;
  cmi_fn_seg_at* seg_at;
  cmi_fn_seg_ctl* seg_ctl;
  cmi_fn_seg_dt* seg_dt;
  cmi_fn_seg_exp* seg_exp;
  cmi_fn_seg_get* seg_get;
  cmi_fn_seg_imp* seg_imp;
  cmi_fn_tok_del* tok_del;
  cmi_fn_tok_new* tok_new;
  cmi_fn_wmb_fn* wmb_fn;
  cmi_fn_seg_getva* seg_getva;
  cmi_fn_tok_newva* tok_newva;
};

/**
 * The function fn of interface version ver, for a call: CMIFN(ctxt, 10, seg_get)(ctxt, size,
 * flags). ver is a number or a macro for one, as CMI_VERNO; a function that the version does not
 * have does not compile. ctxt must be what cmi_ini() returned, and not NULL.
 */
#define CMIFN(ctxt, ver, fn) (CMI_FNS_(ctxt, ver)->fn)
/* Between the two, ver is expanded. */
#define CMI_FNS_(ctxt, ver) ((ctxt)->fns##ver)

/* ---- Functions called by name --------------------------------------------------------------- */

/**
 * Initializes the library for this process and registers the calling thread; fini() is its
 * opposite. While the process has a context it returns that one, and registers one more thread.
 * [libcmi(3), cmi_ini]
 *   verno     the newest version that the client understands, for instance CMI_VERNO; the context
 *             gets the lower of this and the library's newest of that major version
 *             (ctxt->base.verno)
 *   callback  allocation and trace callbacks, copied; NULL: none
 * Returns: the context, or NULL.
 * Errors: CMI_ERR_NOTSUPP, another major version, or this machine has no usable userfaultfd or
 * libfabric provider (a trace line says what to do); CMI_ERR_NOMEM, out of memory or of contexts;
 * CMI_ERR_BOUND, the calling thread is registered; CMI_ERR_INVAL, alloc without free or free
 * without alloc, unknown trace facility or level, a bad environment variable (a trace line names
 * it), no folder for CMI_RUNTIME_DIR to be made in, or the node is of another version of the
 * library; CMI_ERR_PERM, CMI_RUNTIME_DIR is another user's or open to others; CMI_ERR_HW, no
 * endpoint or socket could be opened at the address; CMI_ERR_RECONFIG, as for all calls.
 */
CMI_EXPORT cmi_ctxt* cmi_ini(uint16_t verno, cmi_cbs* callback);

/**
 * The last error of the calling thread; ask right after the failure, a later call that succeeds may
 * clear it. Any thread may call it, registered or not. [libcmi(3), cmi_get_error]
 *   ctxt  anything: it is not looked at; NULL for instance after cmi_ini() has failed
 */
CMI_EXPORT cmi_error cmi_get_error(cmi_ctxt* ctxt);

#ifdef __cplusplus
}
#endif

#endif
