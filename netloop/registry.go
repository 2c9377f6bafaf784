package netloop

import "github.com/goloop/goloop/transports"

// kind tells what a slot holds.
type kind uint8

const (
	kindFree kind = iota
	kindStream
	kindListener
	kindWatch
	kindDatagram
)

// interest is what the poller holds for a descriptor: directions, and whether it
// falls silent after one event, or tells of new events only.
type interest uint8

const (
	readable interest = interest(transports.Readable) // GL_READABLE
	writable interest = interest(transports.Writable) // GL_WRITABLE
	oneShot  interest = 4
	edge     interest = 8
	// broken is of events alone: the peer is gone, or the socket has an error.
	broken interest = 16
	// errorAlone is of an event: the poller reports an error and neither data, room nor an end. An
	// error queue that is not read (IP_RECVERR, SO_TIMESTAMPING) reports it in each poll.
	errorAlone interest = 32

	directions = readable | writable
)

// slot is one registration, in a life that begins with open and ends with release.
type slot struct {
	gen  uint32
	fd   int32
	kind kind

	// held is what the poller has been told; 0: it does not know the descriptor.
	held interest
	// spent: held is a oneShot that has fired, so the poller is silent.
	spent bool

	// Membership of the reactor's lists, so that nothing is listed twice.
	queued    bool // in ready, with these directions
	ready     interest
	dirty     bool // in dirty: to be flushed, or its interest adjusted
	reporting bool // in reports: progress, or one of the errors below
	urgent    bool // and somebody waits for that report
	large     bool // a stream that lately received much at once
	trusted   bool // in trusted: a wait that relies on what the poller was told before

	// quiet: a transport that the poller reports new events of only, because of errorAlone.
	quiet bool

	// alone counts the events in a row that were errorAlone.
	alone uint8

	// lost: a watch whose number names another file, or none.
	lost bool

	// reports counts a watch's reports, up to the next look at its number.
	reports uint8

	// ignored counts a watch's events since the last that somebody waited for.
	ignored uint8

	// watch is a watch's, the machines are those of the other kinds. An endpoint's is
	// kept for the slot's next one.
	watch watch

	// lately is what a stream's last receive brought, in bytes.
	lately uint32

	// Errors of a stream on their way to C.
	writeError, readError errno32

	stream   transports.Stream
	datagram *transports.Datagram
	listener *transports.Listener
}

// errno32 is a syscall.Errno in half its size: there is a slot for each connection.
type errno32 uint32

// hasNumber tells whether the descriptor is still that of the slot's lease. A watch
// has none: its number means whatever it names.
func (s *slot) hasNumber() bool {
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

// registry holds the slots by id, and which of them the poller knows by fd.
type registry struct {
	// The slots, in blocks that never move: a slice that grew would leave its former
	// self to the collector, which with many connections is most of the heap. Nor are
	// blocks given back: a slot's generation outlives its registrations, because a late
	// event or submission may still have an earlier one. So the blocks have the size of the
	// most registrations that there were at once, 88 bytes for each, and are used again.
	blocks []*[slotsBlock]slot
	opened uint32 // slots that were ever used
	free   []uint32
	live   int

	// owners tells which slot the poller's registration of a descriptor's number
	// belongs to (id+1, 0: none): the one whose held is not 0. Numbers are used
	// again: a watch whose descriptor was closed by its owner must not take the
	// registration of its successor out of the poller.
	owners owners
}

const slotsBlock = 256

// slot is the slot of an id below opened.
func (g *registry) slot(id uint32) *slot { return &g.blocks[id/slotsBlock][id%slotsBlock] }

// owners maps numbers of descriptors to slots. It is cut into blocks, so that it
// grows by what is open and not by the highest number.
type owners struct{ blocks []*[ownersBlock]uint32 }

const ownersBlock = 1024

func (o *owners) get(fd int32) uint32 {
	b := int(fd) / ownersBlock
	if b >= len(o.blocks) || o.blocks[b] == nil {
		return 0
	}
	return o.blocks[b][int(fd)%ownersBlock]
}

func (o *owners) set(fd int32, owner uint32) {
	b := int(fd) / ownersBlock
	if b >= len(o.blocks) {
		o.blocks = append(o.blocks, make([]*[ownersBlock]uint32, b+1-len(o.blocks))...)
	}
	if o.blocks[b] == nil {
		o.blocks[b] = new([ownersBlock]uint32)
	}
	o.blocks[b][int(fd)%ownersBlock] = owner
}

// open takes a free slot.
func (g *registry) open(k kind, fd int32) (uint32, *slot) {
	var id uint32
	if n := len(g.free); n > 0 {
		id = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		if id = g.opened; id%slotsBlock == 0 {
			g.blocks = append(g.blocks, new([slotsBlock]slot))
		}
		g.slot(id).gen = 1
		g.opened++
	}
	s := g.slot(id)
	*s = slot{gen: s.gen, fd: fd, kind: k, datagram: s.datagram}
	g.live++
	return id, s
}

// release frees a slot; its generation ends here.
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

// find returns the live registration of a name, or nil.
func (g *registry) find(id, gen uint32) *slot {
	if id >= g.opened {
		return nil
	}
	s := g.slot(id)
	if s.gen != gen || s.kind == kindFree {
		return nil
	}
	return s
}

// findKind is find for one kind.
func (g *registry) findKind(id, gen uint32, k kind) *slot {
	if s := g.find(id, gen); s != nil && s.kind == k {
		return s
	}
	return nil
}

// setOwner makes the slot the owner of its fd; an owner before it has lost its
// registration to this one.
func (g *registry) setOwner(id uint32, fd int32) {
	if before := g.owners.get(fd); before != 0 && before != id+1 {
		s := g.slot(before - 1)
		s.held, s.ready = 0, 0
	}
	g.owners.set(fd, id+1)
}

// taken tells whether a transport or listener holds the poller's registration of fd,
// and the descriptor is still its owner's.
func (g *registry) taken(fd int32) bool {
	id := g.owners.get(fd)
	return id != 0 && g.slot(id-1).kind != kindWatch && g.slot(id-1).hasNumber()
}

// forget is called when a descriptor of the reactor's own has come by this number:
// whoever had it before has it no more.
func (g *registry) forget(fd int32) {
	if id := g.owners.get(fd); id != 0 {
		g.slot(id - 1).held = 0
		g.dropOwner(fd)
	}
}

func (g *registry) dropOwner(fd int32) { g.owners.set(fd, 0) }
