package netloop

import "github.com/goloop/goloop/transports"

// kind is the kind of a registration.
type kind uint8

const (
	kindFree kind = iota // an unused slot
	kindStream
	kindListener
	kindWatch
	kindDatagram
)

// interest is the interest mask of a registration in the poller: the directions, and the
// trigger mode.
type interest uint8

const (
	readable interest = interest(transports.Readable) // GL_READABLE
	writable interest = interest(transports.Writable) // GL_WRITABLE
	oneShot  interest = 4
	edge     interest = 8
	// broken is a flag of events only: the peer is gone, or the socket has an error.
	broken interest = 16
	// errorOnly is a flag of events only: the poller reports an error without data, space or an
	// end. An error queue that is not read (IP_RECVERR, SO_TIMESTAMPING) causes this in each
	// poll.
	errorOnly interest = 32

	directions = readable | writable
)

// slot is one registration, from open to release.
type slot struct {
	gen  uint32
	fd   int32
	kind kind

	// registered is the interest mask in the poller; 0: the descriptor is not registered.
	registered interest
	// oneShotFired: registered has oneShot and the event was reported, so the poller does not
	// report any more.
	oneShotFired bool

	// Membership in the reactor's lists, so that a slot is in each list at most once.
	inReady       bool // in Reactor.ready, with the directions in ready
	ready         interest
	inDirty       bool // in Reactor.dirty: the stream must be flushed, or its interest updated
	inReports     bool // in Reactor.pendingReports: bytes sent, or one of the errors below
	receivesLarge bool // the last receive of the stream returned many bytes
	assumedArmed  bool // in Reactor.assumedArmed

	// edgeTriggered: the transport is registered with edge because of errorOnly events.
	edgeTriggered bool

	// errorOnlyEvents counts consecutive errorOnly events.
	errorOnlyEvents uint8

	// fdLost: the number of the watch refers to another file or is closed.
	fdLost bool

	// reportCount counts a watch's reports; at an overflow its number is checked.
	reportCount uint8

	// ignoredEvents counts a watch's events since the last event that was reported.
	ignoredEvents uint8

	// watch is used by kindWatch; the machines below are used by the other kinds. The Datagram
	// is kept and reused by the next registration of the slot.
	watch watch

	// Errors of a stream that were not reported to C yet.
	writeError, readError errno32

	stream   transports.Stream
	datagram *transports.Datagram
	listener *transports.Listener
}

// errno32 is a syscall.Errno of half the size, to make slots smaller: each connection has one.
type errno32 uint32

// leaseValid reports whether the descriptor still belongs to the slot's lease. A watch does not
// have a lease: its number may refer to any file.
func (s *slot) leaseValid() bool {
	switch s.kind {
	case kindStream:
		return s.stream.LeaseValid()
	case kindListener:
		return s.listener.LeaseValid()
	case kindDatagram:
		return s.datagram.LeaseValid()
	default:
		return s.kind == kindWatch
	}
}

// registry stores the registrations by id and finds them by descriptor.
type registry struct {
	// Slots are in blocks that never move. A slice that grew would leave its old memory to the
	// garbage collector, and with many connections this is most of the heap. Blocks are not
	// freed either: a slot's generation must outlive its registrations, because a late event or
	// submission may have an earlier generation. So the blocks have the size of the maximum
	// number of simultaneous registrations, 88 bytes each, and are reused.
	blocks    []*[slotsPerBlock]slot
	slotsUsed uint32   // number of slots that were ever used
	free      []uint32 // ids of unused slots
	live      int      // number of registrations

	// owners maps a descriptor's number to the slot that registered it in the poller (id+1, 0:
	// none), which is the slot with registered != 0. Numbers are reused: a watch on a
	// descriptor that its owner has closed must not remove the registration of the next file
	// with this number.
	owners owners
}

// slotsPerBlock is the number of slots that are allocated together.
const slotsPerBlock = 256

// slot returns the slot of an id below slotsUsed.
func (g *registry) slot(id uint32) *slot { return &g.blocks[id/slotsPerBlock][id%slotsPerBlock] }

// owners maps descriptors' numbers to slots. It consists of blocks, so that its size depends on
// the number of open descriptors and not on the highest number.
type owners struct{ blocks []*[ownersPerBlock]uint32 }

// ownersPerBlock is the number of consecutive descriptors in a block.
const ownersPerBlock = 1024

// get returns the owner of fd as id+1, or 0.
func (o *owners) get(fd int32) uint32 {
	b := int(fd) / ownersPerBlock
	if b >= len(o.blocks) || o.blocks[b] == nil {
		return 0
	}
	return o.blocks[b][int(fd)%ownersPerBlock]
}

// set sets the owner of fd.
func (o *owners) set(fd int32, owner uint32) {
	b := int(fd) / ownersPerBlock
	if b >= len(o.blocks) {
		o.blocks = append(o.blocks, make([]*[ownersPerBlock]uint32, b+1-len(o.blocks))...)
	}
	if o.blocks[b] == nil {
		o.blocks[b] = new([ownersPerBlock]uint32)
	}
	o.blocks[b][int(fd)%ownersPerBlock] = owner
}

// open allocates a slot for a registration of fd and returns its id and the slot. The slot keeps
// its generation and a Datagram that can be reused; all other fields are reset.
func (g *registry) open(k kind, fd int32) (uint32, *slot) {
	var id uint32
	if n := len(g.free); n > 0 {
		id = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		if id = g.slotsUsed; id%slotsPerBlock == 0 {
			g.blocks = append(g.blocks, new([slotsPerBlock]slot))
		}
		g.slot(id).gen = 1
		g.slotsUsed++
	}
	s := g.slot(id)
	*s = slot{gen: s.gen, fd: fd, kind: k, datagram: s.datagram}
	g.live++
	return id, s
}

// release frees a slot and starts its next generation. The poller's registration must have ended
// before.
func (g *registry) release(id uint32, s *slot) {
	s.kind = kindFree
	s.listener = nil
	s.gen++
	if s.gen == 0 {
		s.gen = 1
	}
	g.free = append(g.free, id)
	g.live--
}

// find returns the registration with this id and generation, or nil.
func (g *registry) find(id, gen uint32) *slot {
	if id >= g.slotsUsed {
		return nil
	}
	s := g.slot(id)
	if s.gen != gen || s.kind == kindFree {
		return nil
	}
	return s
}

// findKind is find for registrations of one kind.
func (g *registry) findKind(id, gen uint32, k kind) *slot {
	if s := g.find(id, gen); s != nil && s.kind == k {
		return s
	}
	return nil
}

// setOwner makes the slot the owner of its fd. A previous owner of this number is no longer
// registered or ready, because its registration in the poller was replaced.
func (g *registry) setOwner(id uint32, fd int32) {
	if before := g.owners.get(fd); before != 0 && before != id+1 {
		s := g.slot(before - 1)
		s.registered, s.ready = 0, 0
	}
	g.owners.set(fd, id+1)
}

// hasTransport reports whether a transport or listener has registered fd in the poller and its
// lease is still valid.
func (g *registry) hasTransport(fd int32) bool {
	id := g.owners.get(fd)
	return id != 0 && g.slot(id-1).kind != kindWatch && g.slot(id-1).leaseValid()
}

// clearOwner notes that fd is not registered any more.
func (g *registry) clearOwner(fd int32) { g.owners.set(fd, 0) }
